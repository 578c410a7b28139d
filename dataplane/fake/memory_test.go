package fake_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/lab/conformance"
)

type fixture struct {
	plane  *fake.DataPlane
	facade dataplane.DataPlane
}

func (f fixture) DataPlane() dataplane.DataPlane { return f.facade }
func (f fixture) Reopen(*testing.T)              { f.plane.Restart() }
func (f fixture) Finish(_ *testing.T, flow schedule.Flow) (fake.Decision, error) {
	return f.plane.Finish(flow, 40)
}
func (f fixture) Forward(_ *testing.T, flow schedule.Flow, syn bool, length int) (fake.Decision, error) {
	return f.plane.Forward(flow, syn, length)
}

func TestConformance(t *testing.T) {
	conformance.Run(t, func(*testing.T) conformance.Fixture {
		m := fake.New()
		return fixture{m, m}
	}).Recorded(t, "memory")
}

// Calls that fail and are retried until they succeed have the same result as calls that
// never fail.
func TestFaultyConformance(t *testing.T) {
	conformance.Run(t, func(*testing.T) conformance.Fixture {
		m := fake.New()
		return fixture{m, insistent{fake.NewFaulty(m, 0.3, 1)}}
	})
}

// insistent retries failed calls.
type insistent struct{ *fake.Faulty }

func (i insistent) List() (list []desired.Frontend, err error) {
	err = insist(func() (err error) { list, err = i.Faulty.List(); return err })
	return list, err
}

func (i insistent) Upsert(f desired.Frontend) error {
	return insist(func() error { return i.Faulty.Upsert(f) })
}

func (i insistent) Delete(k service.Key) error {
	return insist(func() error { return i.Faulty.Delete(k) })
}

func insist(call func() error) error {
	for {
		if err := call(); !errors.Is(err, fake.ErrFault) {
			return err
		}
	}
}

// A client that has opened nothing for the frontend's affinity timeout may get another
// backend. Its flows stay.
func TestAffinityEnds(t *testing.T) {
	now := time.Unix(1000, 0)
	m := fake.NewAt(func() time.Time { return now })
	f := desired.Frontend{
		Key:    service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP},
		Method: service.Tunnel, Scheduler: service.RoundRobin, RingSize: 251, Affinity: time.Minute,
	}
	for i := range 2 {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 1, byte(i + 1)}), 80)
		f.Backends = append(f.Backends, service.Backend{Addr: addr, Weight: 1})
	}
	if err := m.Upsert(f); err != nil {
		t.Fatal(err)
	}
	open := func(port uint16) int {
		client := netip.AddrPortFrom(netip.MustParseAddr("192.168.0.1"), port)
		d, err := m.Forward(schedule.Flow{Client: client, Key: f.Key}, true, 60)
		if err != nil {
			t.Fatal(err)
		}
		return int(d.Server.Addr().As4()[3])
	}
	for i, step := range []struct {
		after time.Duration
		port  uint16
		want  int
	}{{0, 1, 1}, {time.Minute, 2, 1}, {time.Minute, 3, 1}, {61 * time.Second, 1, 1}, {0, 4, 2}, {0, 2, 1}, {0, 5, 2}} {
		now = now.Add(step.after)
		if got := open(step.port); got != step.want {
			t.Errorf("step %d: got server %d, want %d", i, got, step.want)
		}
	}
}

func TestFollow(t *testing.T) {
	d := fake.New()
	f := desired.Frontend{
		Key:    service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP},
		Method: service.Tunnel, Scheduler: service.RoundRobin, RingSize: 251,
	}
	var servers []netip.AddrPort
	for _, addr := range []string{"172.16.1.1:80", "172.16.1.2:80", "172.16.1.3:80"} {
		servers = append(servers, netip.MustParseAddrPort(addr))
		f.Backends = append(f.Backends, service.Backend{Addr: servers[len(servers)-1], Weight: 1})
	}
	f.Backends[2].Weight = 0
	upsert := func() {
		if err := d.Upsert(f); err != nil {
			t.Fatal(err)
		}
	}
	upsert()
	follow := func(client string, opens bool, chosen netip.AddrPort) netip.AddrPort {
		got, err := d.Follow(schedule.Flow{Client: netip.MustParseAddrPort(client), Key: f.Key}, opens, 100, chosen)
		if err != nil {
			t.Fatal(err)
		}
		return got.Server
	}
	for range 2 { // no round robin
		if got := follow("192.0.2.1:1000", true, servers[1]); got != servers[1] {
			t.Errorf("went to %s, not where it was sent", got)
		}
	}
	if got := follow("192.0.2.1:1000", true, servers[0]); got != servers[1] {
		t.Errorf("a known flow followed to %s", got)
	}
	if got := follow("192.0.2.1:1001", true, servers[2]); got == servers[2] {
		t.Error("a new flow followed to a server that drains")
	}
	f.Backends[1].Weight = 0
	upsert()
	if got := follow("192.0.2.1:1000", false, servers[0]); got != servers[1] {
		t.Errorf("a flow of a server that drains followed to %s", got)
	}
	if got := follow("192.0.2.1:1000", true, servers[0]); got != servers[0] {
		t.Errorf("after it began again, it went to %s", got)
	}
}
