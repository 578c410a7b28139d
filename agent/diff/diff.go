// Package diff compares what a load balancer has programmed with what it would program for
// other manifests: frontends, backends and routes, and which connections would break. It
// changes nothing; the plan and the layout of Maglev tables come from the loop and the data
// plane themselves. Tests need no kernel.
package diff

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Change is what happens to an object.
type Change string

// Changes.
const (
	Added    Change = "added"
	Removed  Change = "removed"
	Changed  Change = "changed"
	Rejected Change = "rejected" // the data plane does not support it: what is programmed stays
)

// Input is everything that a Report depends on.
type Input struct {
	// Programmed are the frontends in the data plane, and Before the plan that they are from.
	Programmed map[service.Key]desired.Frontend
	Before     *plan.Plan
	// After is the plan for the other manifests.
	After *plan.Plan
	// Advertised are the routes that are advertised. Advertises means that there can be any.
	Advertised []route.Route
	Advertises bool
	// Canonical returns what the data plane stores of a frontend; nil for everything.
	Canonical func(desired.Frontend) desired.Frontend
	// Preview computes a change; nil if the data plane cannot.
	Preview func(desired.Frontend) (dataplane.Preview, error)
	// Flows are the tracked flows, of this load balancer first. A flow may occur twice.
	Flows iter.Seq2[dataplane.Flow, error]
	// Problems are those of the other manifests.
	Problems []problem.Problem
}

// Report is what would change.
type Report struct {
	Frontends []Frontend `json:"frontends"`
	Routes    []Route    `json:"routes"`
	// Connections is the number of tracked connections that would break.
	Connections int `json:"connectionsAtRisk"`
	// Problems are what of the manifests is rejected: the previous version stays in use.
	Problems []problem.Problem `json:"problems,omitempty"`
}

// Empty reports whether nothing would change.
func (r Report) Empty() bool { return len(r.Frontends)+len(r.Routes) == 0 }

// Frontend is a frontend that would change.
type Frontend struct {
	Service  service.ID `json:"service"`
	Frontend string     `json:"frontend"`
	Change   Change     `json:"change"`
	// Reason is why it is removed or rejected, if the Service still exists.
	Reason   string    `json:"reason,omitempty"`
	Fields   []Field   `json:"fields,omitempty"`
	Backends []Backend `json:"backends,omitempty"`
	// Slots is the size of its Maglev table, and SlotsMoved the share of the table, from 0 to
	// 1, that gets another owner.
	Slots      int     `json:"slots,omitempty"`
	SlotsMoved float64 `json:"slotsMoved,omitempty"`
	// Connections is the number of tracked connections, and AtRisk has those that would break.
	Connections int    `json:"connections"`
	AtRisk      []Risk `json:"atRisk,omitempty"`
	key         service.Key
}

// Field is a setting that would change.
type Field struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// Backend is a backend that would change. Its weight is empty where it is not a backend.
type Backend struct {
	Backend netip.AddrPort `json:"backend"`
	Change  BackendChange  `json:"change"`
	From    string         `json:"fromWeight,omitempty"`
	To      string         `json:"toWeight,omitempty"`
}

// BackendChange is what happens to a backend.
type BackendChange string

// Changes of backends.
const (
	BackendAdded   BackendChange = "added"
	BackendRemoved BackendChange = "removed"
	BackendDrained BackendChange = "drained" // weight 0: no new connections
	BackendChanged BackendChange = "changed"
)

// Risk counts connections that would break for the same reason.
type Risk struct {
	Reason      string `json:"reason"`
	Connections int    `json:"connections"`
}

// Route is a route that would change.
type Route struct {
	Prefix netip.Prefix `json:"prefix"`
	Change Change       `json:"change"`
	From   string       `json:"from,omitempty"`
	To     string       `json:"to,omitempty"`
}

// Of compares.
func Of(in Input) (Report, error) {
	r := Report{Frontends: []Frontend{}, Routes: []Route{}, Problems: in.Problems}
	d := &differ{Input: in, changes: map[service.Key]*change{}, after: map[service.Key]desired.Frontend{}}
	if err := d.frontends(); err != nil {
		return r, err
	}
	if err := d.connections(); err != nil {
		return r, err
	}
	for _, c := range d.changes {
		for reason, n := range c.risks {
			c.AtRisk = append(c.AtRisk, Risk{reason, n})
			r.Connections += n
		}
		slices.SortFunc(c.AtRisk, func(a, b Risk) int { return cmp.Compare(a.Reason, b.Reason) })
		r.Frontends = append(r.Frontends, c.Frontend)
	}
	slices.SortFunc(r.Frontends, func(a, b Frontend) int { return cmp.Or(a.Service.Compare(b.Service), a.key.Compare(b.key)) })
	if in.Advertises {
		r.Routes = d.routes()
	}
	return r, nil
}

// differ computes a Report.
type differ struct {
	Input
	changes map[service.Key]*change
	// after has what would be programmed.
	after map[service.Key]desired.Frontend
}

// change is a frontend that changes, with what decides about its connections.
type change struct {
	Frontend
	before, after *desired.Frontend
	preview       dataplane.Preview
	risks         map[string]int
}

// frontends finds the frontends that change.
func (d *differ) frontends() error {
	owners, reasons := map[service.Key]service.ID{}, map[service.Key]string{}
	for i := range d.Before.Frontends {
		if f := &d.Before.Frontends[i]; f.Want != nil {
			owners[f.Key] = f.Service.ID
		}
	}
	for i := range d.After.Frontends {
		f := &d.After.Frontends[i]
		if f.Want == nil {
			if _, known := reasons[f.Key]; !known {
				reasons[f.Key] = string(f.State) + ": " + f.Reason
			}
			continue
		}
		if err := d.upsert(f.Service.ID, *f.Want); err != nil {
			return err
		}
	}
	for k, f := range d.Programmed {
		if _, stays := d.after[k]; !stays {
			d.changes[k] = &change{Frontend: Frontend{Service: owners[k], Frontend: k.String(), Change: Removed, Reason: reasons[k], key: k}, before: &f}
		}
	}
	return nil
}

// upsert records what an Upsert of a frontend changes.
func (d *differ) upsert(owner service.ID, want desired.Frontend) error {
	was, there := d.Programmed[want.Key]
	d.after[want.Key] = want
	stored, storedWas := want, was
	if d.Canonical != nil {
		stored, storedWas = d.Canonical(want), d.Canonical(was)
	}
	if there && storedWas.Same(stored) {
		return nil
	}
	c := &change{Frontend: Frontend{Service: owner, Frontend: want.Key.String(), Change: Added, key: want.Key}, after: &stored}
	if d.Preview != nil {
		var err error
		c.preview, err = d.Preview(want)
		switch {
		case errors.Is(err, dataplane.ErrUnsupported):
			c.Change, c.Reason = Rejected, err.Error()
			if d.changes[want.Key] = c; there {
				d.after[want.Key], c.after = was, &was
			} else {
				delete(d.after, want.Key)
			}
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", want.Key, err)
		}
	}
	c.Slots, c.SlotsMoved = c.preview.Slots, c.preview.Moved
	if there {
		c.Change, c.before = Changed, &storedWas
		c.Fields = fields(storedWas, stored)
	}
	c.Backends = backends(was.Backends, want.Backends)
	if there && len(c.Fields)+len(c.Backends) == 0 && c.SlotsMoved == 0 {
		return nil // only times
	}
	d.changes[want.Key] = c
	return nil
}

// fields compares settings, with the names of their annotations.
func fields(a, b desired.Frontend) (all []Field) {
	add := func(name string, from, to any) {
		if f, t := cmp.Or(fmt.Sprint(from), "none"), cmp.Or(fmt.Sprint(to), "none"); f != t {
			all = append(all, Field{name, f, t})
		}
	}
	add("forwarding-mode", a.Method, b.Method)
	add("encapsulation", a.Encapsulation, b.Encapsulation)
	add("scheduler", a.Scheduler, b.Scheduler)
	add("connection-consistency", a.Survival, b.Survival)
	add("maglev-table-size", a.RingSize, b.RingSize)
	add("session-affinity", a.Affinity.Round(time.Second), b.Affinity.Round(time.Second))
	add("source-ranges", prefixes(a.Allow), prefixes(b.Allow))
	add("deny-source-ranges", prefixes(a.Deny), prefixes(b.Deny))
	add("rate-limits", a.Limits.Annotation(), b.Limits.Annotation())
	add("syn-protection", a.Protection(), b.Protection())
	return all
}

func prefixes(all []netip.Prefix) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ",")
}

// backends compares lists that are sorted by address.
func backends(before, after []service.Backend) (all []Backend) {
	find := func(in []service.Backend, b service.Backend) (service.Backend, bool) {
		i, ok := slices.BinarySearchFunc(in, b, service.Backend.Compare)
		if !ok {
			return b, false
		}
		return in[i], true
	}
	for _, b := range before {
		now, stays := find(after, b)
		one := Backend{Backend: b.Addr, Change: BackendRemoved, From: weight(b)}
		if stays {
			one.Change, one.To = BackendChanged, weight(now)
		}
		if stays && now.Draining() && !b.Draining() {
			one.Change = BackendDrained
		}
		if !stays || one.From != one.To {
			all = append(all, one)
		}
	}
	for _, b := range after {
		if _, was := find(before, b); !was {
			all = append(all, Backend{Backend: b.Addr, Change: BackendAdded, To: weight(b)})
		}
	}
	slices.SortStableFunc(all, func(a, b Backend) int { return a.Backend.Compare(b.Backend) })
	return all
}

// weight formats a backend's weight, and its connection limit if there is one.
func weight(b service.Backend) string {
	if b.MaxConns > 0 {
		return fmt.Sprintf("%d, at most %d connections", b.Weight, b.MaxConns)
	}
	return fmt.Sprint(b.Weight)
}

// routes compares what is advertised with the routes of the plan that lead to what would be
// programmed.
func (d *differ) routes() []Route {
	all := []Route{}
	now := map[netip.Prefix]route.Route{}
	for _, r := range d.After.Routes {
		programmed := func(k service.Key) bool { _, ok := d.after[k]; return ok }
		if slices.ContainsFunc(r.Frontends, programmed) {
			now[r.Prefix] = r.Route
		}
	}
	before := map[netip.Prefix]bool{}
	for _, r := range d.Advertised {
		before[r.Prefix] = true
		switch to, stays := now[r.Prefix]; {
		case !stays:
			all = append(all, Route{Prefix: r.Prefix, Change: Removed, From: r.String()})
		case to != r:
			all = append(all, Route{Prefix: r.Prefix, Change: Changed, From: r.String(), To: to.String()})
		}
	}
	for prefix, r := range now {
		if !before[prefix] {
			all = append(all, Route{Prefix: prefix, Change: Added, To: r.String()})
		}
	}
	slices.SortFunc(all, func(a, b Route) int { return a.Prefix.Compare(b.Prefix) })
	return all
}
