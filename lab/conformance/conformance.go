// Package conformance is the suite that every data plane passes: the same
// stories, told by frontends going in and packets coming out, each compared
// with the in-memory twin. A data plane brings a Fixture and calls Run; what
// it cannot do it refuses by name (dataplane.ErrUnsupported), and the suite
// skips that story with the reason.
package conformance

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
)

// Fixture is a data plane with a wire into it.
type Fixture interface {
	// DataPlane gives the data plane as it is open now.
	DataPlane() dataplane.DataPlane
	// Reopen closes it and opens it again, as a restarted agent does.
	Reopen(t *testing.T)
	// Forward sends one packet of a flow through it, with length bytes of IP
	// packet, and tells where it went. opens says that it is a SYN or an INIT.
	// Its errors wrap memory.ErrNotOurs and those of memory.Drops. It skips
	// the test where it cannot make such a packet.
	Forward(t *testing.T, flow schedule.Flow, opens bool, length int) (fake.Decision, error)
}

// Finisher is a Fixture that can end flows of TCP.
type Finisher interface {
	// Finish sends a FIN of the client's, as Forward sends other packets.
	Finish(t *testing.T, flow schedule.Flow) (fake.Decision, error)
}

// Held is what a fixture's data plane was given: to ask a kernel for each packet
// takes longer than all the rest.
type Held map[service.Key]desired.Frontend

// Find gives the frontend that a packet is for: that of its port before one of a
// range, before that of the whole address.
func (h Held) Find(k service.Key) (found desired.Frontend, ok bool) {
	for _, f := range h {
		has := f.VIP == k.VIP && (f.Whole() || f.Protocol == k.Protocol) && f.Port <= k.Port && k.Port <= max(f.Port, f.Last)
		if has && (!ok || found.Whole() || !f.Range()) {
			found, ok = f, true
		}
	}
	return found, ok
}

// OwnChoice is a fixture whose data plane chooses servers by rules of its own, as
// the kernel's IPVS does. A new flow may then go to any server that takes new
// flows; all else is compared with the twin as ever: to which server flows stick,
// who drains, who is full, whose client it is, what was counted. What a scheduler
// promises, the stories ask for themselves.
type OwnChoice interface {
	// ChoosesItself does nothing: to have it is enough.
	ChoosesItself()
}

// ErrNowhere is what Forward of a data plane that names no reasons answers where
// no server got the packet. That there is a reason the twin must agree.
var ErrNowhere = errors.New("no server got it")

// Run tells every story to one fixture, which holds nothing when a story begins:
// to open a data plane takes long. It gives what came of each.
func Run(t *testing.T, open func(t *testing.T) Fixture) (all Outcomes) {
	fixture := open(t)
	for _, story := range stories {
		t.Run(story.name, func(test *testing.T) {
			all = append(all, Outcome{Story: story.name})
			s := &teller{T: test, Fixture: fixture, twin: fake.New(), suite: t, outcome: &all[len(all)-1]}
			defer s.empty()
			story.tell(s)
			s.outcome.Told = s.outcome.Told || !s.outcome.inParts
		})
	}
	return all
}

var stories = []struct {
	name string
	tell func(*teller)
}{
	{"the verbs are idempotent", verbs},
	{"every method, scheduler, family and protocol", everyKind},
	{"flows are shared by weight", shares},
	{"schedulers share as they promise", promises},
	{"a draining server keeps its flows and gets no new ones", draining},
	{"weight 0 drains under every scheduler", drainingBySchedule},
	{"a removed server gets nothing", removal},
	{"all servers drain", allDrain},
	{"several changes in a row lose no flow", chains},
	{"who has just started knows the flows of others", newcomer},
	{"without survival the ring alone decides", noSurvival},
	{"round robin takes turns and remembers", roundRobin},
	{"what must remember its flows does", remembers},
	{"a client's hash, a VIP's hash", hashes},
	{"servers have no more connections than they may", maxConns},
	{"clients stay with their server", affinity},
	{"ranges of ports and whole addresses", ranges},
	{"only who may is let in", clients},
	{"only who may is let in to ranges", clientsOfRanges},
	{"what is not ours is left alone", notOurs},
	{"a restart changes nothing", restart},
	{"everything changes while it runs", changes},
	{"counters tell the truth", counters},
	{"a random walk beside the twin", randomWalk},
}

// teller tells a story to a fixture and its twin at once.
type teller struct {
	*testing.T
	Fixture
	twin  *fake.DataPlane
	suite *testing.T // whose end is the fixture's
	// outcome is the whole story's, also of a part.
	outcome *Outcome
}

// part tells a part of a story, which may be skipped by itself.
func (s *teller) part(name string, tell func(*teller)) {
	s.outcome.inParts = true
	s.Run(name, func(t *testing.T) {
		tell(&teller{T: t, Fixture: s.Fixture, twin: s.twin, suite: s.suite, outcome: s.outcome})
		s.outcome.Told = true
	})
}

// reopen opens the fixture anew, for the stories that follow, too.
func (s *teller) reopen() {
	s.Reopen(s.suite)
	s.twin.Restart()
}

// empty deletes every frontend.
func (s *teller) empty() {
	held, err := s.DataPlane().List()
	for _, f := range held {
		err = errors.Join(err, s.DataPlane().Delete(f.Key))
	}
	if err != nil {
		s.Error(err)
	}
}

// upsert makes both hold f; a refusal by name ends the story.
func (s *teller) upsert(f desired.Frontend) {
	s.Helper()
	err := s.DataPlane().Upsert(f)
	if errors.Is(err, dataplane.ErrUnsupported) {
		what, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), f.Key.String()+": "), ": ")
		s.outcome.refuse(what)
		s.Skip(err)
	}
	if err == nil {
		kept := s.kept(f)
		kept.RingSize = f.RingSize // the twin has a ring in any case
		err = s.twin.Upsert(kept)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// kept gives what the data plane keeps of f.
func (s *teller) kept(f desired.Frontend) desired.Frontend {
	if d, ok := s.DataPlane().(dataplane.Canonical); ok {
		return d.Canonical(f)
	}
	return f
}

// choosesItself says that servers need not be the twin's.
func (s *teller) choosesItself() bool {
	_, ok := s.Fixture.(OwnChoice)
	return ok
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
	slices.SortFunc(got, func(a, b desired.Frontend) int { return a.Key.Compare(b.Key) })
	want, _ := s.twin.List()
	for i := range want {
		want[i] = s.kept(want[i])
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); diff != "" {
		s.Fatalf("lists other than the twin (-twin +this):\n%s", diff)
	}
}

// send sends a packet through both and fails unless they agree.
func (s *teller) send(flow schedule.Flow, opens bool) (fake.Decision, error) {
	s.Helper()
	got, err := s.Forward(s.T, flow, opens, packetLength)
	forward := s.twin.Forward
	if s.choosesItself() {
		forward = func(flow schedule.Flow, opens bool, length int) (fake.Decision, error) {
			return s.twin.Follow(flow, opens, length, got.Server)
		}
	}
	want, wantErr := forward(flow, opens, packetLength)
	if errors.Is(err, ErrNowhere) && wantErr != nil && !errors.Is(wantErr, fake.ErrNotOurs) {
		err = wantErr
	}
	if !same(got, want) || !sameReason(err, wantErr) {
		s.Fatalf("%v (opens %v): went to %v, %v; want %v, %v", flow, opens, got, err, want, wantErr)
	}
	return got, err
}

func same(a, b fake.Decision) bool { return a.Server == b.Server && slices.Equal(a.Older, b.Older) }

// finds says that a packet comes by a server.
func finds(d fake.Decision, server netip.AddrPort) bool {
	return d.Server == server || slices.Contains(d.Older, server)
}

// must sends a packet that has to go somewhere.
func (s *teller) must(flow schedule.Flow, opens bool) fake.Decision {
	s.Helper()
	d, err := s.send(flow, opens)
	if err != nil {
		s.Fatalf("%v: %v", flow, err)
	}
	return d
}

func sameReason(a, b error) bool {
	for _, reason := range fake.Drops {
		if errors.Is(a, reason) != errors.Is(b, reason) {
			return false
		}
	}
	return errors.Is(a, fake.ErrNotOurs) == errors.Is(b, fake.ErrNotOurs) && (a == nil) == (b == nil)
}

const packetLength = 120

// frontend is the one that most stories are told of.
func frontend(method service.Method, scheduler service.Scheduler, backends int) desired.Frontend {
	return kind{method: method, scheduler: scheduler, protocol: service.TCP}.frontend(backends)
}

// kind is a frontend in short.
type kind struct {
	method        service.Method
	encapsulation service.Encapsulation
	scheduler     service.Scheduler
	protocol      service.Protocol
	vip6, server6 bool
	port          uint16 // 0: 80
}

func (k kind) String() string {
	family := map[bool]string{false: "IPv4", true: "IPv6"}
	return fmt.Sprint(k.method, " ", k.encapsulation, " ", k.scheduler, " ", k.protocol, " ", family[k.vip6], " to ", family[k.server6])
}

func (k kind) frontend(backends int) desired.Frontend {
	if k.port == 0 {
		k.port = 80
	}
	f := desired.Frontend{
		Key:    service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: k.port, Protocol: k.protocol},
		Method: k.method, Encapsulation: k.encapsulation, Scheduler: k.scheduler, RingSize: 1021,
		Survival: (&service.Service{Method: k.method, Scheduler: k.scheduler}).DefaultSurvival(),
	}
	if k.method == service.Tunnel && k.encapsulation == "" {
		f.Encapsulation = service.DefaultEncapsulation
	}
	if k.vip6 {
		f.VIP = netip.MustParseAddr("2001:db8:1::1")
	}
	for i := range backends {
		b := server(i)
		addr, port := b.Addr.Addr(), b.Addr.Port()
		if k.server6 {
			addr = netip.AddrFrom16([16]byte{0xfd, 0x10, 15: byte(i + 1)})
		}
		if service.CheckPort(k.method, f.Key, port) != nil {
			port = f.Port
		}
		b.Addr = netip.AddrPortFrom(addr, port)
		f.Backends = append(f.Backends, b)
	}
	return f
}

func server(i int) service.Backend {
	return service.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 1, byte(i + 1)}), 8080), Weight: 1}
}

// with gives f with other backends.
func with(f desired.Frontend, change func([]service.Backend) []service.Backend) desired.Frontend {
	f.Backends = change(slices.Clone(f.Backends))
	return f
}

// drained gives f with the i-th backend taking no new flows.
func drained(f desired.Frontend, i int) desired.Frontend {
	return with(f, func(b []service.Backend) []service.Backend { b[i].Weight = 0; return b })
}

// joined gives f with one more backend, the i-th, since then.
func joined(f desired.Frontend, i int, since time.Time) desired.Frontend {
	return with(f, func(b []service.Backend) []service.Backend {
		s := server(i)
		s.Since = since
		return append(b, s)
	})
}

// flow is the i-th flow to a frontend.
func flow(k service.Key, i int) schedule.Flow {
	client := netip.AddrFrom4([4]byte{192, 168, byte(i >> 14), byte(i>>6) | 1})
	if k.VIP.Is6() {
		client = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(i >> 8)})
	}
	return schedule.Flow{Client: netip.AddrPortFrom(client, uint16(1024+i)), Key: k}
}
