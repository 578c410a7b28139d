package status

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/router"
)

// View is a presentation of a Status: what JSON and YAML show, and the same as a table.
type View interface {
	// table writes the view as a table.
	table(t *table)
}

// Overview returns a view of everything, summarized in the table.
func (s Status) Overview() View { return overview{s.complete()} }

// overview is a Status in JSON; the table is a summary.
type overview struct{ Status }

func (v overview) table(t *table) {
	t.line("fairlead %s on %s (%s)", v.Version, v.Node, v.Kernel)
	t.fact("role", v.Role+", up "+Age(v.Started, v.Time))
	if d := v.DataPlane; d != nil {
		t.fact("data plane", d.Kind)
		for _, a := range d.Attached {
			t.fact("", a)
		}
		for _, w := range d.Warnings {
			t.fact("warning", w)
		}
		t.fact("drops", tally(nonzero(d.Drops)))
	}
	if v.NodeKeys != nil {
		t.fact("node keys", v.NodeKeys.words())
	}
	if v.DSRAgent != nil {
		v.dsrAgent(t)
	}
	if v.ServiceProxy != nil {
		v.serviceProxy(t)
	}
	if !v.routing() {
		t.fact("services", number(len(v.Services)))
		t.fact("frontends", v.frontendStates())
		t.fact("backends", v.backendHealth())
		if drained := v.drainedBackends(); len(drained) > 0 {
			t.list("drained", len(drained), drained, "fairlead get backends")
		}
		if floods := v.synFloods(); len(floods) > 0 {
			t.fact("SYN floods", fmt.Sprintf("protection is active, frontends: %d", len(floods)))
			for _, f := range floods {
				t.fact("", f)
			}
		}
	}
	if v.Drain != nil {
		t.fact("drain", v.DrainWords())
	}
	t.fact("routes", v.routeStates())
	if words := v.withdrawingWords(); words != "" {
		t.fact("withdrawing", words)
	}
	if states := v.layer2States(); states != "" {
		t.fact("layer 2", states)
	}
	t.fact("peers", v.peerStates())
	t.fact("degraded", number(len(v.Degraded)))
	for _, d := range v.Degraded {
		t.fact("", d.String())
	}
	if len(v.Stale) > 0 {
		t.list("stale", len(v.Stale), staleLines(v.Stale, v.Time), "fairlead status -o json")
	}
	t.list("problems", len(v.Problems), problem.Lines(v.Problems), "fairlead status -o json")
	if len(v.Peers) > 0 {
		t.line("")
		v.peers(t, false)
	}
}

// words returns "5f is sent; 5f, a3 are accepted; packets without a tag are dropped".
func (k NodeKeys) words() string {
	others := "counted and accepted"
	if k.Required {
		others = "dropped"
	}
	return fmt.Sprintf("%s is sent; %s accepted; packets without a right tag are %s", k.Sends, strings.Join(k.Accepts, ", "), others)
}

// dsrAgent writes the state of the DSR agent.
func (v overview) dsrAgent(t *table) {
	h := v.DSRAgent
	t.fact("DSR agent", fmt.Sprintf("%d flows tracked", h.Flows))
	for _, a := range h.Attached {
		t.fact("", a)
	}
	t.fact("senders", h.senders())
	t.fact("packets", tally(nonzero(h.Counters)))
	var servers []string
	for _, e := range h.Entries {
		servers = append(servers, fmt.Sprintf("%s for %s by %s, %d flows", e.Server, e.key(), e.ForwardingMode, e.Flows))
	}
	t.list("servers", len(h.Entries), servers, "fairlead get backends")
}

// routing reports whether this is a routing daemon instead of an agent.
func (s Status) routing() bool { return s.Role == RoleReflector || s.Role == RoleRouter }

func (v overview) frontendStates() string {
	count := map[string]uint64{}
	for _, s := range v.Services {
		for _, f := range s.Frontends {
			count[string(f.State)]++
		}
	}
	return tally(count)
}

func (v overview) backendHealth() string {
	count := map[string]uint64{}
	for _, b := range v.allBackends() {
		word := b.Health
		if b.Weight == 0 {
			word = "draining"
		}
		count[word]++
	}
	return tally(count)
}

// drainedBackends lists the backends that operators drain, each once.
func (v overview) drainedBackends() (all []string) {
	for _, b := range v.allBackends() {
		if b.Quarantine != nil {
			all = append(all, b.Address.String()+" "+b.Quarantine.Why())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (v overview) routeStates() string {
	if len(v.Routes) == 0 {
		return "none"
	}
	announced := 0
	for _, r := range v.Routes {
		if r.Advertised {
			announced++
		}
	}
	switch v.Role {
	case RoleReflector:
		return fmt.Sprintf("%d received", len(v.Routes))
	case RoleRouter:
		words := fmt.Sprintf("%d of %d in the kernel", announced, len(v.Routes))
		if n := v.DegradedPrefixes(); n > 0 {
			words += fmt.Sprintf(", degraded prefixes: %d", n)
		}
		return words
	}
	return fmt.Sprintf("%d of %d advertised", announced, len(v.Routes))
}

// DegradedPrefixes counts a router's prefixes whose routes are not as received.
func (s Status) DegradedPrefixes() int {
	prefixes := map[netip.Prefix]bool{}
	for _, r := range s.Routes {
		if r.Rule == RuleDegraded {
			prefixes[r.Prefix] = true
		}
	}
	return len(prefixes)
}

func (v overview) peerStates() string {
	count := map[string]uint64{}
	for _, p := range v.Peers {
		count[p.State]++
	}
	return tally(count)
}

// ServicesView shows the Services, one frontend per line.
func (s Status) ServicesView() View { return services{list: s.complete().Services, status: s} }

type services struct {
	list   []Service
	status Status
}

// MarshalJSON encodes only the list.
func (v services) MarshalJSON() ([]byte, error) { return marshal(v.list) }

func (v services) table(t *table) {
	head := []string{"SERVICE", "FRONTEND", "MODE", "SCHEDULER", "STATE"}
	if v.status.balances() {
		head = append(head, "BACKENDS", "FLOWS")
		if t.wide {
			head = append(head, "PACKETS", "BYTES")
		}
	}
	if v.status.DSRAgent != nil {
		head = append(head, "LOCAL", "TRACKED")
	}
	t.head(append(head, "REASON")...)
	for _, s := range v.list {
		for _, f := range s.Frontends {
			row := []string{s.ID, f.Key(), string(s.ForwardingMode), string(s.Scheduler), string(f.State)}
			if v.status.balances() {
				row = append(row, f.count(func(b Backend) bool { return b.InService && b.ProgrammedWeight > 0 }), fmt.Sprint(f.Counts.Flows))
				if t.wide {
					row = append(row, fmt.Sprint(f.Counts.Packets), size(f.Counts.Bytes))
				}
			}
			if v.status.DSRAgent != nil {
				row = append(row, f.count(func(b Backend) bool { return b.Local != nil && b.Local.Here }), fmt.Sprint(f.remembered()))
			}
			t.row(append(row, s.reason(f, v.status.Time))...)
		}
	}
}

// synFloods lists the frontends that are currently protected against one.
func (s Status) synFloods() (all []string) {
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			if f.SYNProtected() {
				all = append(all, fmt.Sprintf("%s (%s)", f.Key(), svc.ID))
			}
		}
	}
	return all
}

// reason explains why a frontend of the Service is not as its source specifies.
func (s Service) reason(f Frontend, now time.Time) string {
	reason := f.Reason
	if reason == "" && f.SYNProtected() {
		reason = "SYN protection is active"
	}
	if s.StaleSince.IsZero() {
		return reason
	}
	stale := "stale since " + moment(s.StaleSince, now) + ": its manifest is rejected (fairlead status)"
	if reason == "" {
		return stale
	}
	return reason + "; " + stale
}

// balances reports whether this is, or may be, a load balancer: a node with only a DSR
// agent neither probes nor counts.
func (s Status) balances() bool { return s.DataPlane != nil || s.DSRAgent == nil }

// count returns "3/4": how many backends satisfy a condition.
func (f Frontend) count(is func(Backend) bool) string {
	n := 0
	for _, b := range f.Backends {
		if is(b) {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(f.Backends))
}

// remembered returns the number of flows that the DSR agent tracks.
func (f Frontend) remembered() int {
	n := 0
	for _, b := range f.Backends {
		if b.Local != nil {
			n += b.Local.Flows
		}
	}
	return n
}

// BackendsView shows the backends, one backend of one frontend per line.
func (s Status) BackendsView() View {
	return backends{list: s.allBackends(), status: s}
}

// backendOf is a Backend with its Service and frontend.
type backendOf struct {
	Service  string `json:"service"`
	Frontend string `json:"frontend"`
	Backend
}

type backends struct {
	list   []backendOf
	status Status
}

// MarshalJSON encodes only the list.
func (v backends) MarshalJSON() ([]byte, error) { return marshal(v.list) }

func (v backends) table(t *table) {
	head := []string{"SERVICE", "FRONTEND", "BACKEND"}
	if t.wide {
		head = append(head, "NAME")
	}
	head = append(head, "NODE", "WEIGHT")
	if v.status.balances() {
		head = append(head, "HEALTH", "SINCE", "STATE", "FLOWS")
		if t.wide {
			head = append(head, "PACKETS", "BYTES")
		}
		head = append(head, "REASON")
	}
	if v.status.DSRAgent != nil {
		head = append(head, "TRACKED", "LOCAL")
	}
	t.head(head...)
	for _, b := range v.list {
		row := []string{b.Service, b.Frontend, b.Address.String()}
		if t.wide {
			row = append(row, b.Name)
		}
		row = append(row, b.Node, b.weight())
		if v.status.balances() {
			row = append(row, b.Health, Age(b.Since, v.status.Time), b.State(), fmt.Sprint(b.Counts.Flows))
			if t.wide {
				row = append(row, fmt.Sprint(b.Counts.Packets), size(b.Counts.Bytes))
			}
			row = append(row, b.Quarantine.And(b.LastError))
		}
		if v.status.DSRAgent != nil {
			row = append(row, b.Local.words()...)
		}
		t.row(row...)
	}
}

// weight shows both weights if they differ.
func (b Backend) weight() string {
	if b.InService && b.ProgrammedWeight != b.Weight {
		return fmt.Sprintf("%d (programmed: %d)", b.Weight, b.ProgrammedWeight)
	}
	return fmt.Sprint(b.Weight)
}

// words returns the two cells on what the DSR agent does for a backend.
func (l *Local) words() []string {
	switch {
	case l == nil:
		return []string{"", "not needed"}
	case l.Here:
		return []string{fmt.Sprint(l.Flows), "yes"}
	}
	return []string{"", "no: " + l.Reason}
}

func (s Status) allBackends() []backendOf {
	all := []backendOf{}
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			for _, b := range f.Backends {
				all = append(all, backendOf{svc.ID, f.Key(), b})
			}
		}
	}
	return all
}

// RoutesView shows the routes, one prefix and next hop per line. For a router, it shows
// the kernel's table in the format of ip route.
func (s Status) RoutesView() View { return routes{list: s.complete().Routes, status: s} }

type routes struct {
	list   []Route
	status Status
}

// MarshalJSON encodes only the list.
func (v routes) MarshalJSON() ([]byte, error) { return marshal(v.list) }

func (v routes) table(t *table) {
	switch v.status.Role {
	case RoleRouter:
		v.kernel(t)
		return
	case RoleReflector:
		v.received(t)
		return
	}
	marked := slices.ContainsFunc(v.list, func(r Route) bool { return r.Attributes != route.Attributes{} })
	cells := func(attributes string, rest ...string) []string {
		if marked {
			rest = slices.Insert(rest, len(rest)-1, attributes)
		}
		return rest
	}
	t.head(cells("ATTRIBUTES", "PREFIX", "NEXT HOP", "ADVERTISED", "SINCE", "REASON")...)
	for _, r := range v.list {
		t.row(cells(r.Attributes.String(), r.Prefix.String(), address(r.NextHop), yesNo(r.Advertised), Age(r.Since, v.status.Time), r.Reason)...)
	}
	v.answers(t)
}

func (v routes) received(t *table) {
	t.head("PREFIX", "NEXT HOP")
	for _, r := range v.list {
		t.row(r.Prefix.String(), address(r.NextHop))
	}
}

// kernel shows the kernel's table, and then everything that is not as received.
func (v routes) kernel(t *table) {
	for l := range strings.Lines(router.Format(v.status.Table)) {
		t.line("%s", strings.TrimSuffix(l, "\n"))
	}
	lacks := map[netip.Prefix]bool{}
	for _, r := range v.list {
		if !r.Advertised {
			lacks[r.Prefix] = true
			t.line("%s via %s is not in the kernel: %s", r.Prefix, r.NextHop, r.Reason)
		}
	}
	for _, r := range v.list {
		if r.Rule == RuleDegraded && !lacks[r.Prefix] {
			lacks[r.Prefix] = true
			t.line("%s is degraded: %s", r.Prefix, r.Reason)
		}
	}
}

func nonzero(count map[string]uint64) map[string]uint64 {
	count = maps.Clone(count)
	maps.DeleteFunc(count, func(_ string, n uint64) bool { return n == 0 })
	return count
}

// tally returns "3 up, 1 down", largest count first, equal ones by name; "none" if empty.
func tally(count map[string]uint64) string {
	if len(count) == 0 {
		return "none"
	}
	words := make([]string, 0, len(count))
	for w := range count {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	for i, w := range words {
		words[i] = fmt.Sprintf("%d %s", count[w], w)
	}
	return strings.Join(words, ", ")
}

func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func number(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// size formats bytes for display: "1.5MiB".
func size(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprint(n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f%ciB", v, units[i])
}

// InNamespace returns s with the Services of a namespace, or all if it is "".
func (s Status) InNamespace(namespace string) Status {
	if namespace == "" {
		return s
	}
	s.Services = slices.DeleteFunc(slices.Clone(s.Services), func(svc Service) bool { return !strings.HasPrefix(svc.ID, namespace+"/") })
	return s
}

// Only returns s with the named Services, each "namespace/name" or "name", or all if no
// name is given. A name that matches none is an error.
func (s Status) Only(names ...string) (Status, error) {
	if len(names) == 0 {
		return s, nil
	}
	kept := []Service{}
	found := make([]bool, len(names))
	for _, svc := range s.Services {
		_, short, _ := strings.Cut(svc.ID, "/")
		keep := false
		for i, n := range names {
			if n == svc.ID || n == short {
				found[i], keep = true, true
			}
		}
		if keep {
			kept = append(kept, svc)
		}
	}
	if i := slices.Index(found, false); i >= 0 {
		return s, fmt.Errorf("unknown service %s: see fairlead get services", names[i])
	}
	s.Services = kept
	return s, nil
}
