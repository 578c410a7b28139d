package status

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// View is one way to look at a Status: what JSON and YAML show, and the table
// of the same.
type View interface {
	// table writes the view for people.
	table(t *table)
}

// Overview looks at everything, summed up in the table.
func (s Status) Overview() View { return overview{s.complete()} }

// overview is a Status in JSON; the table sums up.
type overview struct{ Status }

func (v overview) table(t *table) {
	t.line("fairlead %s on %s (%s)", v.Version, v.Node, v.Kernel)
	t.fact("role", v.Role+", up "+age(v.Started, v.Time))
	if d := v.DataPlane; d != nil {
		t.fact("data plane", d.Kind)
		for _, a := range d.Attached {
			t.fact("", a)
		}
		t.fact("drops", drops(d.Drops))
	}
	t.fact("services", number(len(v.Services)))
	t.fact("frontends", v.frontendStates())
	t.fact("backends", v.backendHealth())
	t.fact("routes", v.routeStates())
	t.fact("peers", v.peerStates())
	t.fact("problems", number(len(v.Problems)))
	for _, p := range v.Problems {
		t.fact("", p.String())
	}
	if len(v.Peers) > 0 {
		t.line("")
		v.peers(t)
	}
}

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
		if b.Draining {
			word = "draining"
		}
		count[word]++
	}
	return tally(count)
}

func (v overview) routeStates() string {
	if len(v.Routes) == 0 {
		return "none"
	}
	announced := 0
	for _, r := range v.Routes {
		if r.Announced {
			announced++
		}
	}
	return fmt.Sprintf("%d of %d announced", announced, len(v.Routes))
}

func (v overview) peerStates() string {
	count := map[string]uint64{}
	for _, p := range v.Peers {
		count[p.State]++
	}
	return tally(count)
}

func (v overview) peers(t *table) {
	t.row("PEER", "AS", "STATE", "SINCE", "RECEIVED", "SENT", "LAST ERROR")
	for _, p := range v.Peers {
		t.row(p.Address, fmt.Sprint(p.AS), p.State, age(p.Since, v.Time), fmt.Sprint(p.Received), fmt.Sprint(p.Sent), p.LastError)
	}
	t.end()
}

// ServicesView looks at the services, a line a frontend.
func (s Status) ServicesView() View { return services(s.complete().Services) }

type services []Service

func (v services) table(t *table) {
	t.row("SERVICE", "FRONTEND", "METHOD", "SCHEDULER", "STATE", "BACKENDS", "FLOWS", "PACKETS", "BYTES", "REASON")
	for _, s := range v {
		for _, f := range s.Frontends {
			t.row(s.ID, f.Key(), string(s.Method), string(s.Scheduler), string(f.State), f.inService(),
				fmt.Sprint(f.Counts.Flows), fmt.Sprint(f.Counts.Packets), size(f.Counts.Bytes), f.Reason)
		}
	}
	t.end()
}

// inService gives "3/4": how many backends take new flows, of how many.
func (f Frontend) inService() string {
	n := 0
	for _, b := range f.Backends {
		if b.InService && !b.Draining {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(f.Backends))
}

// BackendsView looks at the servers, a line a server and frontend.
func (s Status) BackendsView() View {
	return backends{list: s.allBackends(), status: s}
}

// backendOf is a Backend with where it stands.
type backendOf struct {
	Service  string `json:"service"`
	Frontend string `json:"frontend"`
	Backend
}

type backends struct {
	list   []backendOf
	status Status
}

// MarshalJSON shows the list alone.
func (v backends) MarshalJSON() ([]byte, error) { return marshal(v.list) }

func (v backends) table(t *table) {
	t.row("SERVICE", "FRONTEND", "BACKEND", "NAME", "NODE", "WEIGHT", "HEALTH", "SINCE", "STATE", "FLOWS", "PACKETS", "BYTES", "LAST ERROR")
	for _, b := range v.list {
		t.row(b.Service, b.Frontend, b.Address.String(), b.Name, b.Node, fmt.Sprint(b.Weight), b.Health,
			age(b.Since, v.status.Time), b.state(), fmt.Sprint(b.Counts.Flows), fmt.Sprint(b.Counts.Packets),
			size(b.Counts.Bytes), b.LastError)
	}
	t.end()
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

// RoutesView looks at the routes, a line a prefix and next hop.
func (s Status) RoutesView() View { return routes{list: s.complete().Routes, status: s} }

type routes struct {
	list   []Route
	status Status
}

// MarshalJSON shows the list alone.
func (v routes) MarshalJSON() ([]byte, error) { return marshal(v.list) }

func (v routes) table(t *table) {
	t.row("PREFIX", "NEXT HOP", "ANNOUNCED", "SINCE", "REASON")
	for _, r := range v.list {
		t.row(r.Prefix.String(), address(r.NextHop), yesNo(r.Announced), age(r.Since, v.status.Time), r.Reason)
	}
	t.end()
}

func drops(d map[string]uint64) string {
	nonzero := map[string]uint64{}
	for why, n := range d {
		if n > 0 {
			nonzero[why] = n
		}
	}
	return tally(nonzero)
}

// tally gives "3 up, 1 down", the largest count first, equals by name; "none"
// of nothing.
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

// size gives bytes as people read it: "1.5MiB".
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

// Only keeps the services named, each "namespace/name" or a name alone; all
// of them where none is named. A name that fits none is an error.
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
		return s, fmt.Errorf("no service %s here: fairlead services shows which there are", names[i])
	}
	s.Services = kept
	return s, nil
}
