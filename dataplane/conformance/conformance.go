// Package conformance is the suite that every data plane passes: the same
// stories, told by frontends going in and packets coming out, each compared
// with the in-memory twin. A data plane brings a Fixture and calls Run; what
// it cannot do it refuses by name (dataplane.ErrUnsupported), and the suite
// skips that story with the reason.
package conformance

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/memory"
	"github.com/fairlead/fairlead/schedule"
	"github.com/fairlead/fairlead/service"
)

// Fixture is a data plane with a wire into it.
type Fixture interface {
	// DataPlane gives the data plane as it is open now.
	DataPlane() dataplane.DataPlane
	// Reopen closes it and opens it again, as a restarted agent does.
	Reopen(t *testing.T)
	// Forward sends one packet of a flow through it, with length bytes of IP
	// packet, and tells where it went. Its errors wrap memory.ErrNotOurs,
	// memory.ErrNotServed and memory.ErrNoServer.
	Forward(t *testing.T, flow schedule.Flow, syn bool, length int) (memory.Decision, error)
}

// Run tells every story to fresh fixtures.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			story.tell(&teller{T: t, Fixture: open(t), twin: memory.New()})
		})
	}
}

var stories = []struct {
	name string
	tell func(*teller)
}{
	{"the verbs are idempotent", verbs},
	{"every method, family and protocol", everyKind},
	{"flows are shared by weight", shares},
	{"a draining server keeps its flows and gets no new ones", draining},
	{"a removed server gets nothing", removal},
	{"all servers drain", allDrain},
	{"round robin takes turns and remembers", roundRobin},
	{"fullnat remembers its flows", fullNATRemembers},
	{"what is not ours is left alone", notOurs},
	{"a restart changes nothing", restart},
	{"method and scheduler change while it runs", changes},
	{"counters tell the truth", counters},
	{"a random walk beside the twin", randomWalk},
}

// teller tells a story to a fixture and its twin at once.
type teller struct {
	*testing.T
	Fixture
	twin *memory.DataPlane
}

// upsert makes both hold f; a refusal by name ends the story.
func (s *teller) upsert(f dataplane.Frontend) {
	s.Helper()
	err := s.DataPlane().Upsert(f)
	if errors.Is(err, dataplane.ErrUnsupported) {
		s.Skip(err)
	}
	if err == nil {
		err = s.twin.Upsert(f)
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *teller) delete(k service.Key) {
	s.Helper()
	if err := errors.Join(s.DataPlane().Delete(k), s.twin.Delete(k)); err != nil {
		s.Fatal(err)
	}
}

// sameList fails unless both list the same.
func (s *teller) sameList() {
	s.Helper()
	got, err := s.DataPlane().List()
	if err != nil {
		s.Fatal(err)
	}
	slices.SortFunc(got, func(a, b dataplane.Frontend) int { return a.Key.Compare(b.Key) })
	want, _ := s.twin.List()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		s.Fatalf("lists other than the twin (-twin +this):\n%s", diff)
	}
}

// send sends a packet through both and fails unless they agree.
func (s *teller) send(flow schedule.Flow, syn bool) (memory.Decision, error) {
	s.Helper()
	got, err := s.Forward(s.T, flow, syn, packetLength)
	want, wantErr := s.twin.Forward(flow, syn, packetLength)
	if !same(got, want) || !sameReason(err, wantErr) {
		s.Fatalf("%v (syn %v): went to %v, %v; want %v, %v", flow, syn, got, err, want, wantErr)
	}
	return got, err
}

func same(a, b memory.Decision) bool { return a.Server == b.Server && slices.Equal(a.Older, b.Older) }

// finds says that a packet comes by a server.
func finds(d memory.Decision, server netip.AddrPort) bool {
	return d.Server == server || slices.Contains(d.Older, server)
}

// must sends a packet that has to go somewhere.
func (s *teller) must(flow schedule.Flow, syn bool) memory.Decision {
	s.Helper()
	d, err := s.send(flow, syn)
	if err != nil {
		s.Fatalf("%v: %v", flow, err)
	}
	return d
}

func sameReason(a, b error) bool {
	for _, reason := range []error{memory.ErrNotOurs, memory.ErrNotServed, memory.ErrNoServer} {
		if errors.Is(a, reason) != errors.Is(b, reason) {
			return false
		}
	}
	return (a == nil) == (b == nil)
}

const packetLength = 120

// frontend is the one that most stories are told of.
func frontend(method service.Method, scheduler service.Scheduler, backends int) dataplane.Frontend {
	f := dataplane.Frontend{
		Key:    service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP},
		Method: method, Scheduler: scheduler, RingSize: 1021,
	}
	for i := range backends {
		f.Backends = append(f.Backends, server(i))
	}
	return f
}

func server(i int) service.Backend {
	return service.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 1, byte(i + 1)}), 8080), Weight: 1}
}

// with gives f with other backends.
func with(f dataplane.Frontend, change func([]service.Backend) []service.Backend) dataplane.Frontend {
	f.Backends = change(slices.Clone(f.Backends))
	return f
}

// flow is the i-th flow to a frontend.
func flow(k service.Key, i int) schedule.Flow {
	client := netip.AddrFrom4([4]byte{192, 168, byte(i >> 14), byte(i>>6) | 1})
	if k.VIP.Is6() {
		client = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(i >> 8)})
	}
	return schedule.Flow{Client: netip.AddrPortFrom(client, uint16(1024+i)), Key: k}
}
