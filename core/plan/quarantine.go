package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/service"
)

// quarantines has the backends that operators drain, by address.
type quarantines map[netip.Addr][]*service.Quarantine

func quarantinesOf(all []service.Quarantine) quarantines {
	by := make(quarantines, len(all))
	for i := range all {
		by[all[i].Addr] = append(by[all[i].Addr], &all[i])
	}
	return by
}

// find returns the first order that applies to a backend of a Service, or nil.
func (qs quarantines) find(id service.ID, b service.Backend) *service.Quarantine {
	its := qs[b.Addr.Addr()]
	i := slices.IndexFunc(its, func(q *service.Quarantine) bool { return q.Covers(id, b) })
	if i < 0 {
		return nil
	}
	return its[i]
}

// drain notes which backends of a frontend are in quarantine. It returns its backends, with
// weight 0 for these: the same slice if no order applies. All load balancers compute the
// same, because the order has the time at which the drain began.
func (qs quarantines) drain(f *Frontend, backends []service.Backend) []service.Backend {
	if len(qs) == 0 {
		return backends
	}
	drained := backends
	for i, b := range backends {
		q := qs.find(f.Service.ID, b)
		f.Backends[i].Quarantine = q
		if q == nil || b.Draining() {
			continue
		}
		if &drained[0] == &backends[0] {
			drained = slices.Clone(backends)
		}
		drained[i].Weight, drained[i].Drained = 0, q.Since
	}
	return drained
}

// drainingReason returns why no backend of a frontend takes new flows, although some serve.
func (f *Frontend) drainingReason() string {
	n := 0
	for _, b := range f.Backends {
		if b.Quarantine != nil {
			n++
		}
	}
	fix := "set a weight above 0 (fairlead.io/weights)"
	if n > 0 {
		fix = fmt.Sprintf("operators drained %d of them: fairlead undrain --backend", n)
	}
	return fmt.Sprintf("all %d backends have weight 0 or are terminating: open connections continue, new ones are dropped; %s", len(f.Backends), fix)
}

func (p *Plan) collectQuarantines() {
	p.Quarantines = map[service.Quarantine][]string{}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		for _, b := range f.Backends {
			if b.Quarantine == nil {
				continue
			}
			its := p.Quarantines[*b.Quarantine]
			if id := f.Service.ID.String(); !slices.Contains(its, id) {
				p.Quarantines[*b.Quarantine] = append(its, id)
			}
		}
	}
}
