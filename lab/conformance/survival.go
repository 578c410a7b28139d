package conformance

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
)

// then returns a time that is some hours after a fixed start.
func then(hours int) time.Time {
	return time.Date(2026, time.January, 2, 15+hours, 4, 5, 0, time.UTC)
}

// life is a flow and the backend it was opened on.
type life struct {
	flow   schedule.Flow
	server netip.AddrPort
}

// history changes a frontend several times and opens flows after each change. It returns
// the final frontend and the flows.
func (s *runner) history(f desired.Frontend) (desired.Frontend, []life) {
	var lives []life
	s.upsert(f)
	for step, change := range []func(desired.Frontend) desired.Frontend{
		func(f desired.Frontend) desired.Frontend { return f },
		func(f desired.Frontend) desired.Frontend { return joined(f, 6, then(1)) },
		func(f desired.Frontend) desired.Frontend { return joined(joined(f, 7, then(2)), 8, then(2)) },
		func(f desired.Frontend) desired.Frontend { return drained(f, 1) },
	} {
		f = change(f)
		s.upsert(f)
		for i := range 150 {
			flow := flow(f.Key, step*150+i)
			d := s.must(flow, true)
			if f.Stateful() {
				s.must(flow, false) // otherwise a slow machine may take it for part of a SYN flood
			}
			lives = append(lives, life{flow, d.Server})
		}
	}
	return f, lives
}

// survived fails unless the packets of all flows reach their backends.
func (s *runner) survived(lives []life) {
	s.Helper()
	for _, l := range lives {
		if d := s.must(l.flow, false); !finds(d, l.server) {
			s.Fatalf("%v belongs to %s, but is forwarded to %v", l.flow, l.server, d)
		}
	}
}

// skipTracked skips a story about untracked flows if the data plane tracks them
// anyway.
func (s *runner) skipTracked(f desired.Frontend) {
	if s.canonical(f).Stateful() {
		const why = "it tracks these flows"
		s.outcome.addUnsupported(why)
		s.Skip(why)
	}
}

// stateless returns the kinds of frontends whose flows reach their backends without flow
// tracking.
func stateless() []kind {
	return []kind{
		{method: service.Tunnel, scheduler: service.Maglev, protocol: service.TCP},
		{method: service.Tunnel, scheduler: service.Maglev, protocol: service.UDP},
		{method: service.Tunnel, scheduler: service.SourceHash, protocol: service.TCP, encapsulation: service.GUE},
		{method: service.DSRNAT, scheduler: service.Maglev, protocol: service.TCP},
		{method: service.DSRNAT, scheduler: service.Maglev, protocol: service.UDP},
		{method: service.Tunnel, scheduler: service.DestinationHash, protocol: service.TCP},
	}
}

func chains(s *runner) {
	for _, k := range stateless() {
		s.part(k.String(), func(s *runner) {
			f, lives := s.history(k.frontend(6))
			defer s.delete(f.Key)
			s.survived(lives)
			s.sameList()
			if k.protocol != service.UDP {
				return
			}
			// Any UDP packet may open a flow, so the current owner is also at the end of
			// the chain.
			for _, l := range lives {
				if d := s.must(l.flow, false); len(d.Older) > 0 && d.Older[len(d.Older)-1] != d.Server {
					s.Fatalf("%v: %v", l.flow, d)
				}
			}
		})
	}
	s.part("SCTP", func(s *runner) {
		f := kind{method: service.Tunnel, scheduler: service.Maglev, protocol: service.SCTP}.frontend(6)
		s.upsert(f)
		var lives []life
		for i := range 100 {
			flow := flow(f.Key, i)
			lives = append(lives, life{flow, s.must(flow, true).Server})
		}
		s.upsert(drained(f, 2))
		s.survived(lives)
	})
}

// newcomer checks that a load balancer that gets a frontend for the first time forwards
// the flows that others opened during earlier changes.
func newcomer(s *runner) {
	for _, k := range stateless() {
		s.part(k.String(), func(s *runner) {
			s.skipTracked(k.frontend(6))
			f, lives := s.history(k.frontend(6))
			s.delete(f.Key)
			s.upsert(f)
			defer s.delete(f.Key)
			s.survived(lives)
		})
	}
}

func noSurvival(s *runner) {
	for _, method := range []service.Method{service.Tunnel, service.DSRNAT} {
		s.part(string(method), func(s *runner) {
			f := frontend(method, service.Maglev, 6)
			f.Survival = service.HashOnly
			s.skipTracked(f)
			f, lives := s.history(f)
			defer s.delete(f.Key)
			moved := 0
			for _, l := range lives {
				d := s.must(l.flow, false)
				if len(d.Older) > 0 {
					s.Fatalf("%v has previous owners %v", l.flow, d.Older)
				}
				if d.Server != l.server {
					moved++
				}
			}
			if moved == 0 {
				s.Error("no flow moved: the story tests nothing")
			}
		})
	}
}

// remembers checks that tracked flows stay on their backend, and that their packets name
// no other backend.
func remembers(s *runner) {
	flowTable := frontend(service.Tunnel, service.Maglev, 6)
	flowTable.Survival = service.FlowTable
	frontends := map[string]desired.Frontend{
		"flow table": flowTable,
		"nat":        frontend(service.NAT, service.Maglev, 6),
		"fullnat":    frontend(service.FullNAT, service.Maglev, 6),
		"wlc":        frontend(service.DSRNAT, service.WeightedLeastConn, 6),
		"p2c":        frontend(service.FullNAT, service.PowerOfTwo, 6),
	}
	for name, f := range frontends {
		s.part(name, func(s *runner) {
			f, lives := s.history(f)
			defer s.delete(f.Key)
			s.reopen()
			for _, l := range lives {
				if d := s.must(l.flow, false); d.Server != l.server || len(d.Older) > 0 {
					s.Fatalf("%v belongs to %s, but is forwarded to %v", l.flow, l.server, d)
				}
			}
			// Removing a backend ends its flows.
			gone := f.Backends[0].Addr
			s.upsert(with(f, func(b []service.Backend) []service.Backend { return slices.Delete(b, 0, 1) }))
			for _, l := range lives {
				if d := s.must(l.flow, false); d.Server == gone || l.server != gone && d.Server != l.server {
					s.Fatalf("%v belongs to %s, but is forwarded to %v", l.flow, l.server, d)
				}
			}
		})
	}
}
