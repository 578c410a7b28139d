package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
)

func verbs(s *runner) {
	s.sameList()
	f := frontend(service.Tunnel, service.Maglev, 3)
	s.delete(f.Key) // deleting an absent frontend is not an error
	for range 2 {
		s.upsert(f)
		s.sameList()
	}
	other := with(f, func(b []service.Backend) []service.Backend { b[1].Weight = 7; return append(b[:2], server(9)) })
	other.Port = 443
	s.upsert(other)
	s.sameList()
	for range 2 {
		s.delete(f.Key)
		s.sameList()
	}
	s.must(flow(other.Key, 1), true)
}

// kinds returns all combinations that a Service can request.
func kinds() (all []kind) {
	for _, method := range service.Methods {
		for _, scheduler := range service.Schedulers {
			for _, protocol := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
				for family := range 4 {
					k := kind{method: method, scheduler: scheduler, protocol: protocol, vip6: family&1 > 0, server6: family&2 > 0}
					switch {
					case method == service.Tunnel:
						for _, k.encapsulation = range service.Encapsulations {
							all = append(all, k)
						}
					case k.vip6 == k.server6:
						all = append(all, k)
					}
				}
			}
		}
	}
	return all
}

// everyKind programs all frontends of a method and scheduler at the same time, because
// adding the first or removing the last frontend of a method can take long.
func everyKind(s *runner) {
	var programmed []desired.Frontend
	for n, k := range kinds() {
		k.port = uint16(8000 + n)
		if len(programmed) > 0 && (programmed[0].Method != k.method || programmed[0].Scheduler != k.scheduler) {
			s.deleteAll(programmed)
			programmed = nil
		}
		s.part(k.String(), func(s *runner) {
			f := k.frontend(3)
			s.upsert(f)
			programmed = append(programmed, f)
			for i := 10 * n; i < 10*n+10; i++ {
				opened := s.must(flow(f.Key, i), true)
				if got := s.must(flow(f.Key, i), false); !same(got, opened) {
					s.Fatalf("flow %d was forwarded to %v, then to %v", i, opened, got)
				}
			}
		})
	}
	s.deleteAll(programmed)
}

func (s *runner) deleteAll(all []desired.Frontend) {
	s.Helper()
	for _, f := range all {
		s.delete(f.Key)
	}
}

func shares(s *runner) {
	f := frontend(service.Tunnel, service.Maglev, 4)
	f.Backends[3].Weight = 3
	s.upsert(f)
	const flows = 12000
	count := map[netip.AddrPort]int{}
	for i := range flows {
		count[s.must(flow(f.Key, i), true).Server]++
	}
	for _, b := range f.Backends {
		want := flows / 6 * int(b.Weight)
		if got := count[b.Addr]; got < want*9/10 || got > want*11/10 {
			s.Errorf("%s of weight %d got %d flows, want about %d", b.Addr, b.Weight, got, want)
		}
	}
}

// newFlow returns the i-th flow, or another one if flows are tracked, because the i-th
// would not be new again.
func (s *runner) newFlow(f desired.Frontend, i int) schedule.Flow {
	if s.canonical(f).Stateful() {
		i += 5000
	}
	return flow(f.Key, i)
}

// checkEnded checks that schedulers that count connections prefer backends with fewer active
// ones, and consider ended ones if the active ones are equal.
func checkEnded(s *runner) {
	finisher, can := s.Fixture.(Finisher)
	if !can {
		return
	}
	for _, scheduler := range []service.Scheduler{service.LeastConn, service.WeightedLeastConn, service.PowerOfTwo} {
		f := frontend(service.Tunnel, scheduler, 3)
		s.upsert(f)
		busy := f.Backends[2].Addr
		for i := range 30 {
			flow := flow(f.Key, i)
			if s.must(flow, true).Server == busy {
				continue
			}
			got, err := finisher.Finish(s.T, flow)
			if want, wantErr := s.model.Finish(flow, packetLength); !same(got, want) || !sameReason(err, wantErr) {
				s.Fatalf("the FIN of %v was forwarded to %v, %v; want %v, %v", flow, got, err, want, wantErr)
			}
		}
		count := map[netip.AddrPort]int{}
		for i := range 20 {
			count[s.must(flow(f.Key, 30+i), true).Server]++
		}
		if scheduler != service.PowerOfTwo && count[busy] > 10 {
			s.Errorf("%s: of 20 flows %v were forwarded; want fewer to the backend with active connections", scheduler, count)
		}
		s.delete(f.Key)
	}
}

// promises checks the shares that schedulers guarantee, with the weights 1, 2 and 3.
func promises(s *runner) {
	checkEnded(s)
	for scheduler, want := range map[service.Scheduler][3]int{
		service.RoundRobin: {12, 12, 12}, service.LeastConn: {12, 12, 12},
		service.WeightedRoundRobin: {6, 12, 18}, service.WeightedLeastConn: {6, 12, 18},
	} {
		s.part(string(scheduler), func(s *runner) {
			f := frontend(service.Tunnel, scheduler, 3)
			for i := range f.Backends {
				f.Backends[i].Weight = uint32(i + 1)
			}
			s.upsert(f)
			defer s.delete(f.Key)
			count := map[netip.AddrPort]int{}
			for i := range 36 {
				count[s.must(flow(f.Key, i), true).Server]++
			}
			for i, b := range f.Backends {
				if got := count[b.Addr]; got < want[i]-1 || got > want[i]+1 {
					s.Errorf("%s of weight %d got %d flows, want %d", b.Addr, b.Weight, got, want[i])
				}
			}
		})
	}
}

func draining(s *runner) {
	f := frontend(service.Tunnel, service.Maglev, 4)
	s.upsert(f)
	gone := f.Backends[2].Addr
	var before []netip.AddrPort
	for i := range 200 {
		before = append(before, s.must(flow(f.Key, i), true).Server)
	}
	s.upsert(drained(f, 2))
	s.sameList()
	for i, server := range before {
		d := s.must(flow(f.Key, i), false)
		if !finds(d, server) {
			s.Fatalf("flow %d belongs to %s, but is forwarded to %v", i, server, d)
		}
		if opened := s.must(s.newFlow(f, i), true); opened.Server == gone || len(opened.Older) > 0 {
			s.Fatalf("a new flow went to %v", opened)
		}
	}
}

func drainingBySchedule(s *runner) {
	for _, scheduler := range service.Schedulers {
		s.part(string(scheduler), func(s *runner) {
			f := frontend(service.Tunnel, scheduler, 3)
			s.upsert(f)
			defer s.delete(f.Key)
			var before []netip.AddrPort
			for i := range 60 {
				before = append(before, s.must(flow(f.Key, i), true).Server)
			}
			for gone := range 2 { // one after the other, to also test draining all but one
				f = drained(f, gone)
				s.upsert(f)
				for i, server := range before {
					if d := s.must(flow(f.Key, i), false); !finds(d, server) {
						s.Fatalf("flow %d belongs to %s, but is forwarded to %v", i, server, d)
					}
				}
				for i := range 60 {
					d := s.must(flow(f.Key, 1000*(gone+1)+i), true)
					if slices.ContainsFunc(f.Backends, func(b service.Backend) bool { return b.Draining() && finds(d, b.Addr) }) {
						s.Fatalf("a new flow went to %v", d)
					}
				}
			}
		})
	}
}

func removal(s *runner) {
	for _, scheduler := range service.Schedulers {
		s.part(string(scheduler), func(s *runner) {
			f := frontend(service.Tunnel, scheduler, 4)
			s.upsert(f)
			defer s.delete(f.Key)
			for i := range 100 {
				s.must(flow(f.Key, i), true)
			}
			gone := f.Backends[1].Addr
			s.upsert(with(f, func(b []service.Backend) []service.Backend { return slices.Delete(b, 1, 2) }))
			for i := range 100 {
				if d := s.must(flow(f.Key, i), false); finds(d, gone) {
					s.Fatalf("%s: flow %d still goes to %v", scheduler, i, d)
				}
			}
		})
	}
}

func allDrain(s *runner) {
	f := frontend(service.Tunnel, service.Maglev, 2)
	s.upsert(f)
	var before []netip.AddrPort
	for i := range 50 {
		before = append(before, s.must(flow(f.Key, i), true).Server)
	}
	s.upsert(with(f, func(b []service.Backend) []service.Backend { b[0].Weight, b[1].Weight = 0, 0; return b }))
	for i, server := range before {
		if _, err := s.send(s.newFlow(f, i), true); !errors.Is(err, fake.ErrNoServer) {
			s.Fatalf("a new flow was accepted: %v", err)
		}
		if d := s.must(flow(f.Key, i), false); d.Server != server {
			s.Fatalf("flow %d belongs to %s, but is forwarded to %v", i, server, d)
		}
	}
}

func roundRobin(s *runner) {
	f := frontend(service.Tunnel, service.RoundRobin, 3)
	s.upsert(f)
	var got []netip.AddrPort
	for i := range 9 {
		got = append(got, s.must(flow(f.Key, i), true).Server)
	}
	for i := range got {
		want := f.Backends[i%3].Addr
		if s.ownChoice() { // the data plane may start with any backend
			want = got[i%3]
		}
		if turn := got[i-i%3 : i]; got[i] != want || slices.Contains(turn, want) {
			s.Errorf("flow %d went to %s, want %s; all: %v", i, got[i], want, got)
		}
	}
	s.upsert(with(f, func(b []service.Backend) []service.Backend { return append(b, server(5)) }))
	for i, want := range got {
		if d := s.must(flow(f.Key, i), false); d.Server != want {
			s.Errorf("flow %d moved from %s to %s after a backend was added", i, want, d.Server)
		}
	}
}

func notOurs(s *runner) {
	f := frontend(service.Tunnel, service.Maglev, 2)
	s.upsert(f)
	for name, row := range map[string]struct {
		change func(*service.Key)
		want   error
	}{
		"another port":     {func(k *service.Key) { k.Port = 81 }, fake.ErrNoFrontend},
		"another protocol": {func(k *service.Key) { k.Protocol = service.UDP }, fake.ErrNoFrontend},
		"another address":  {func(k *service.Key) { k.VIP = netip.MustParseAddr("10.1.1.2") }, fake.ErrNotOurs},
		"another family":   {func(k *service.Key) { k.VIP = netip.MustParseAddr("2001:db8:1::1") }, fake.ErrNotOurs},
	} {
		k := f.Key
		row.change(&k)
		if _, err := s.send(flow(k, 1), true); !errors.Is(err, row.want) {
			s.Errorf("%s: %v", name, err)
		}
	}
	s.must(flow(f.Key, 1), true)
	other := f
	other.Port = 443
	s.upsert(other)
	for _, step := range []struct {
		do   func(service.Key)
		want error
	}{
		{s.delete, fake.ErrNoFrontend},
		{func(service.Key) { s.reopen() }, fake.ErrNoFrontend},
		{func(service.Key) { s.delete(other.Key) }, fake.ErrNotOurs},
	} {
		step.do(f.Key)
		if _, err := s.send(flow(f.Key, 1), false); !errors.Is(err, step.want) {
			s.Errorf("after the frontend is removed: %v, want %v", err, step.want)
		}
	}
}

func restart(s *runner) {
	frontends := []desired.Frontend{frontend(service.Tunnel, service.Maglev, 4), frontend(service.DSRNAT, service.RoundRobin, 3)}
	if errors.Is(s.DataPlane().Upsert(frontends[1]), dataplane.ErrUnsupported) {
		frontends[1] = frontend(service.NAT, service.RoundRobin, 3)
	}
	s.delete(frontends[1].Key)
	frontends[1].Port = 443
	for i, f := range frontends {
		s.upsert(f)
		for n := range 20 {
			s.must(flow(f.Key, n), true)
		}
		frontends[i] = drained(f, 1)
		s.upsert(frontends[i])
	}
	s.reopen()
	s.sameList()
	for _, f := range frontends {
		for n := range 40 {
			s.must(flow(f.Key, n), n >= 20)
		}
		s.upsert(f)
		for n := range 40 {
			s.must(flow(f.Key, n), false)
		}
	}
}

func changes(s *runner) {
	for _, k := range kinds() {
		if k.protocol != service.TCP || k.vip6 || k.server6 {
			continue
		}
		f := k.frontend(3)
		err := s.DataPlane().Upsert(f)
		if errors.Is(err, dataplane.ErrUnsupported) {
			s.Logf("skipped: %v", err)
			continue
		}
		s.upsert(f)
		s.sameList()
		for i := range 20 {
			s.must(flow(f.Key, i), true)
			s.must(flow(f.Key, i), false)
		}
	}
}

func counters(s *runner) {
	f := frontend(service.Tunnel, service.Maglev, 2)
	f.Port = 4242 // used by no other story, because a kernel may still remember its backends and continue their counters
	s.upsert(f)
	for i := range 30 {
		s.must(flow(f.Key, i), true)
		s.must(flow(f.Key, i), false)
	}
	want, _ := s.model.Counters()
	// A kernel may aggregate its per-CPU counters with a delay.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		got, err := s.DataPlane().Counters()
		switch {
		case err != nil:
			s.Fatal(err)
		case fmt.Sprint(got) == fmt.Sprint(want):
			sampled(s, want)
			return
		case time.Now().After(deadline):
			s.Fatalf("\n got %v\nwant %v", got, want)
		}
	}
}

// sampled compares samples of the only frontend and its backends with its counters.
func sampled(s *runner, want []dataplane.FrontendCounters) {
	got := dataplane.FrontendCounters{Backends: map[string]dataplane.Counts{}}
	err := dataplane.SampleFrontends(s.DataPlane(), func(k service.Key, c dataplane.Counts) { got.Key, got.Total = k, c })
	err = errors.Join(err, dataplane.SampleBackends(s.DataPlane(), func(_ service.Key, a netip.AddrPort, c dataplane.Counts) { got.Backends[a.String()] = c }))
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want[0]) {
		s.Errorf("sampled %v, %v\n   want %v", got, err, want[0])
	}
}

func randomWalk(s *runner) {
	rng := rand.New(rand.NewPCG(7, 8))
	var all []kind
	for _, k := range kinds() {
		if k.protocol == service.TCP && !k.vip6 && !k.server6 && k.method != service.DR {
			all = append(all, k)
		}
	}
	var keys []service.Key
	for step := range 60 {
		f := all[rng.IntN(len(all))].frontend(1 + rng.IntN(6))
		f.Port = uint16(80 + rng.IntN(3))
		for i := range f.Backends {
			b := &f.Backends[i]
			b.Weight = []uint32{0, 1, 1, 2, 5}[rng.IntN(5)]
			b.Since = []time.Time{{}, then(0), then(1), then(2)}[rng.IntN(4)]
		}
		if rng.IntN(6) == 0 {
			s.delete(f.Key)
		} else if err := s.DataPlane().Upsert(f); errors.Is(err, dataplane.ErrUnsupported) {
			s.Logf("skipped: %v", err)
			continue
		} else {
			s.upsert(f)
		}
		if rng.IntN(10) == 0 {
			s.reopen()
		}
		if keys = append(keys, f.Key); step%5 == 0 {
			s.sameList()
		}
		for range 40 {
			k := keys[rng.IntN(len(keys))]
			// Use each client port with one VIP only. With nat, the backend could not
			// distinguish two connections from the same port.
			i := rng.IntN(64) + 64*int(k.Port-80)
			s.send(flow(k, i), rng.IntN(3) == 0) //nolint:errcheck // only agreement matters
		}
	}
}
