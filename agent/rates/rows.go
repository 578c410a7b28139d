package rates

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// snapshot is what a Report is computed from.
type snapshot struct {
	agent status.Agent
	*index
	byKey     *meter[service.Key]
	byBackend *meter[backendKey]
	// rates are those of the frontends of the index.
	rates []Rate
}

// measure computes the rates of all frontends, in the memory of earlier ones, and their
// sum.
func (s *snapshot) measure() (total Rate) {
	s.rates = slices.Grow(s.rates[:0], len(s.frontends))[:len(s.frontends)]
	for i := range s.frontends {
		s.rates[i], _ = s.traffic(&s.frontends[i])
		total.add(s.rates[i])
	}
	return total
}

// traffic returns the rates and totals of a frontend.
func (s *snapshot) traffic(f *frontend) (Rate, dataplane.Counts) {
	if f.State == plan.Conflict { // the counters of the Key are its owner's
		return Rate{}, dataplane.Counts{}
	}
	return s.byKey.of(f.Key)
}

// trafficTo returns the rates and totals of a backend: of an address, or at one place if it
// has no number of frontends.
func (s *snapshot) trafficTo(b backend) (Rate, dataplane.Counts) {
	m, shared := s.byBackend, backendKey{addr: b.addr}
	if b.frontends == 0 {
		if own := (backendKey{key: s.frontends[b.worst.frontend].Key, addr: b.addr}); m.has(own) {
			return m.of(own)
		}
		return m.of(shared)
	}
	rate, counts := m.of(shared)
	others, more := m.of(backendKey{addr: b.addr, sum: true})
	rate.add(others)
	return rate, sum(counts, more)
}

// rows is one view: items in the order of their names.
type rows struct {
	n int
	// takes reports whether a filter in lower case selects an item.
	takes func(i int, filter string) bool
	// key returns what an item is sorted by, the highest first.
	key func(i int, by Column) float64
	row func(i int) Row
}

// pick returns the first rows that a query selects, and how many there are without a limit.
func (v rows) pick(q Query) (first []Row, matching int) {
	type item struct {
		i   int
		key float64
	}
	items := make([]item, 0, v.n)
	filter := strings.ToLower(q.Filter)
	for i := range v.n {
		if filter == "" || v.takes(i, filter) {
			items = append(items, item{i, v.key(i, q.Sort)})
		}
	}
	slices.SortFunc(items, func(a, b item) int {
		order := cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.i, b.i))
		if q.Reverse {
			return -order
		}
		return order
	})
	first = []Row{}
	for _, it := range items[:min(len(items), q.Limit)] {
		first = append(first, v.row(it.i))
	}
	return first, len(items)
}

// view returns the rows of a query.
func (s *snapshot) view(q Query) rows {
	switch {
	case q.View == Services:
		return s.serviceRows()
	case q.View == Frontends:
		return s.frontendRows(q)
	case q.View == Backends && q.Service == "" && q.Frontend == "" && q.Backend == "":
		return s.backendRows(s.byAddress())
	case q.View == Backends:
		return s.backendRows(s.places(q))
	}
	return rows{}
}

func (s *snapshot) serviceRows() rows {
	total := make([]Rate, len(s.services))
	backends, up := make([]int, len(s.services)), make([]int, len(s.services))
	for i, g := range s.services {
		for j := g.first; j < g.end; j++ {
			total[i].add(s.rates[j])
			backends[i] += len(s.frontends[j].Backends)
			up[i] += s.frontends[j].up
		}
	}
	return rows{
		n: len(s.services),
		takes: func(i int, filter string) bool {
			return slices.ContainsFunc(s.of(s.services[i]), func(f frontend) bool { return strings.Contains(f.text, filter) })
		},
		key: func(i int, by Column) float64 {
			if by == ByState {
				return float64(s.worst(s.services[i]).severity)
			}
			return key(by, total[i], backends[i], up[i])
		},
		row: func(i int) Row {
			g := s.services[i]
			f := s.worst(g)
			r := Row{
				Service: f.service, State: string(f.state), Reason: f.reason, Frontends: g.end - g.first,
				Backends: backends[i], Up: up[i], Rate: total[i],
			}
			for j := g.first; j < g.end; j++ {
				_, counts := s.traffic(&s.frontends[j])
				r.Counts = sum(r.Counts, counts)
			}
			return r
		},
	}
}

func (s *snapshot) frontendRows(q Query) rows {
	var all []int
	for i := range s.frontends {
		if s.frontends[i].in(q) {
			all = append(all, i)
		}
	}
	at := func(i int) *frontend { return &s.frontends[all[i]] }
	return rows{
		n:     len(all),
		takes: func(i int, filter string) bool { return strings.Contains(at(i).text, filter) },
		key: func(i int, by Column) float64 {
			if by == ByState {
				return float64(at(i).severity)
			}
			return key(by, s.rates[all[i]], len(at(i).Backends), at(i).up)
		},
		row: func(i int) Row {
			f := at(i)
			_, counts := s.traffic(f)
			return Row{
				Service: f.service, Frontend: f.key, State: string(f.state), Reason: f.reason,
				Backends: len(f.Backends), Up: f.up, Rate: s.rates[all[i]], Counts: counts,
			}
		},
	}
}

// in reports whether a query selects a frontend.
func (f *frontend) in(q Query) bool {
	return (q.Service == "" || q.Service == f.service) && (q.Frontend == "" || q.Frontend == f.key)
}

// places returns the backends of the frontends that a query selects.
func (s *snapshot) places(q Query) (all []backend) {
	for i := range s.frontends {
		f := &s.frontends[i]
		for j := range f.Backends {
			if !f.in(q) {
				break
			}
			if q.Backend == "" || f.Backends[j].Addr.String() == q.Backend {
				all = append(all, s.backend(place{i, j}))
			}
		}
	}
	return all
}

func (s *snapshot) backendRows(all []backend) rows {
	return rows{
		n:     len(all),
		takes: func(i int, filter string) bool { return strings.Contains(all[i].text, filter) },
		key: func(i int, by Column) float64 {
			if by == ByState || by == ByUp {
				return float64(all[i].harm)
			}
			rate, _ := s.trafficTo(all[i])
			return key(by, rate, 0, 0)
		},
		row: func(i int) Row { return s.backendRow(all[i]) },
	}
}

func (s *snapshot) backendRow(b backend) Row {
	rate, counts := s.trafficTo(b)
	f := &s.frontends[b.worst.frontend]
	of := s.agent.BackendState(s.index.view, f.Frontend, *s.at(b.worst), counts)
	r := Row{
		Backend: b.addr.String(), Name: of.Name, Node: of.Node, State: of.State(), Health: of.Health, Since: of.Since,
		LastError: of.LastError, Weight: &of.Weight, Frontends: b.frontends, Rate: rate, Counts: counts,
	}
	if b.frontends <= 1 {
		r.Service, r.Frontend, r.Frontends = f.service, f.key, 1
	}
	return r
}

// key returns what a row is sorted by, the highest first.
func key(by Column, r Rate, backends, up int) float64 {
	switch by {
	case ByPackets:
		return r.Packets
	case ByBits:
		return r.Bits
	case ByFlows:
		return r.Flows
	case ByUp:
		if backends == 0 {
			return math.Inf(-1)
		}
		return -float64(up) / float64(backends)
	}
	return 0
}
