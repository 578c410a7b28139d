// Package selection limits a query to some objects, so that its cost depends on them and
// not on all Services. It selects from what an agent already holds; it reads nothing.
package selection

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
)

// Selection selects the frontends and routes that concern any of its objects. The zero
// Selection selects everything.
type Selection struct {
	// Services are "namespace/name" or "name".
	Services []string
	// Backends are addresses, with or without a port, or names.
	Backends []string
	// Addresses are VIPs.
	Addresses []netip.Addr
	// Prefixes are those of routes.
	Prefixes []netip.Prefix
	// Tables adds digests of Maglev tables, which takes time.
	Tables bool
	// Node selects what concerns the node: its peers, its drain, and the routes that it is
	// withdrawing. All but the last are also part of every other selection.
	Node bool
	// Problems selects all problems, also those of what is not selected.
	Problems bool
}

// All reports whether everything is selected, perhaps with Tables.
func (s Selection) All() bool {
	return !s.Objects() && !s.Node && !s.Problems
}

// Objects reports whether objects are selected.
func (s Selection) Objects() bool {
	return len(s.Services)+len(s.Backends)+len(s.Addresses)+len(s.Prefixes) > 0
}

// Values returns the parameters of a request.
func (s Selection) Values() url.Values {
	v := url.Values{}
	for _, name := range s.Services {
		v.Add("service", name)
	}
	for _, b := range s.Backends {
		v.Add("backend", b)
	}
	for _, a := range s.Addresses {
		v.Add("address", a.String())
	}
	for _, p := range s.Prefixes {
		v.Add("prefix", p.String())
	}
	if s.Tables {
		v.Set("tables", "true")
	}
	if s.Node {
		v.Set("node", "true")
	}
	if s.Problems {
		v.Set("problems", "true")
	}
	return v
}

// Parse is the inverse of Values. Other parameters are ignored.
func Parse(v url.Values) (s Selection, err error) {
	s.Services, s.Backends = v["service"], v["backend"]
	s.Tables, s.Node = v.Get("tables") == "true", v.Get("node") == "true"
	s.Problems = v.Get("problems") == "true"
	for _, text := range v["address"] {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return s, fmt.Errorf("address: %w", err)
		}
		s.Addresses = append(s.Addresses, a)
	}
	for _, text := range v["prefix"] {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return s, fmt.Errorf("prefix: %w", err)
		}
		s.Prefixes = append(s.Prefixes, p.Masked())
	}
	return s, nil
}

// IsService reports whether a name, "namespace/name" or "name", is that of a Service.
func IsService(name, namespace, short string) bool {
	ns, rest, qualified := strings.Cut(name, "/")
	if !qualified {
		return name == short
	}
	return ns == namespace && rest == short
}

// IsBackend reports whether a name is that of a backend: its address, with or without the
// port, or the name of its pod or machine.
func IsBackend(name string, addr netip.AddrPort, pod string) bool {
	return matcherOf(name).is(addr, pod)
}

// takesService reports whether a Service is named.
func (s Selection) takesService(id service.ID) bool {
	return slices.ContainsFunc(s.Services, func(name string) bool { return IsService(name, id.Namespace, id.Name) })
}

// matcher is a backend's name, parsed once.
type matcher struct {
	name string
	addr netip.Addr
	port uint16
}

func matcherOf(name string) matcher {
	if end, err := netip.ParseAddrPort(name); err == nil {
		return matcher{name, end.Addr().Unmap(), end.Port()}
	}
	addr, _ := netip.ParseAddr(name) // otherwise the name of a pod or machine
	return matcher{name: name, addr: addr.Unmap()}
}

func (m matcher) is(addr netip.AddrPort, name string) bool {
	if m.addr.IsValid() {
		return m.addr == addr.Addr() && (m.port == 0 || m.port == addr.Port())
	}
	return name != "" && m.name == name
}

func matchersOf(names []string) []matcher {
	all := make([]matcher, len(names))
	for i, name := range names {
		all[i] = matcherOf(name)
	}
	return all
}

func has(f *plan.Frontend, backends []matcher) bool {
	for i := range f.Backends {
		for _, m := range backends {
			if m.is(f.Backends[i].Addr, f.Backends[i].Name) {
				return true
			}
		}
	}
	return false
}
