package service

import (
	"fmt"
	"net/netip"
	"slices"
)

func (v *validator) encapsulation(s *Service) {
	if s.Method == Tunnel {
		v.check(slices.Contains(Encapsulations, s.Encapsulation), "encapsulation", "unknown encapsulation %q; want %s",
			s.Encapsulation, Alternatives(Encapsulations))
		return
	}
	known := slices.Contains(Methods, s.Method)
	v.check(!known || s.Encapsulation == "", "encapsulation", "does not apply to forwarding mode %s; omit it, or use %s", s.Method, Tunnel)
}

func (v *validator) survival(s *Service) {
	if !v.check(slices.Contains(Survivals, s.Survival), "survival", "unknown connection consistency %q; want %s",
		s.Survival, Alternatives(Survivals)) {
		return
	}
	who := s.remembers()
	v.check(who == "" || s.Survival == FlowTable, "survival", "%s is not possible with %s, for which flows must be remembered; want %s",
		s.Survival, who, FlowTable)
}

func (v *validator) affinity(s *Service) {
	if s.Affinity == 0 {
		return
	}
	v.check(s.Affinity >= MinAffinity && s.Affinity <= MaxAffinity && s.Affinity%MinAffinity == 0, "affinity",
		"%s is out of range; want whole seconds from %s to %s", s.Affinity, MinAffinity, MaxAffinity)
	v.check(s.Scheduler != DestinationHash, "affinity", "has no meaning with scheduler %s, which sends all clients of a VIP to one server",
		DestinationHash)
}

// clients validates the client access lists.
func (v *validator) clients(s *Service) {
	v.ranges(s, "allow", s.Allow)
	v.ranges(s, "deny", s.Deny)
	if len(s.Allow) == 0 {
		return
	}
	for _, v6 := range []bool{false, true} {
		i := slices.IndexFunc(s.Frontends, func(f Frontend) bool { return f.VIP.Is6() == v6 })
		allowed := slices.ContainsFunc(s.Allow, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 })
		v.check(i < 0 || allowed, "allow", "has no prefix of the VIP %s's family, so that it would serve nobody; add one, or %s for everybody",
			vipOf(s, i), map[bool]string{false: "0.0.0.0/0", true: "::/0"}[v6])
	}
}

func vipOf(s *Service, frontend int) netip.Addr {
	if frontend < 0 {
		return netip.Addr{}
	}
	return s.Frontends[frontend].VIP
}

func (v *validator) ranges(s *Service, name string, prefixes []netip.Prefix) {
	for i, p := range prefixes {
		field := fmt.Sprintf("%s[%d]", name, i)
		if !v.check(p.IsValid() && !p.Addr().Is4In6(), field, "%s is not a prefix; want one like 10.0.0.0/8", p) ||
			!v.check(p == p.Masked(), field, "%s has bits beyond its length; did you mean %s?", p, p.Masked()) {
			continue
		}
		v.check(!slices.Contains(prefixes[:i], p), field, "%s is given twice", p)
		v.check(slices.ContainsFunc(s.Frontends, func(f Frontend) bool { return f.VIP.Is6() == p.Addr().Is6() }), field,
			"%s is of another family than every VIP and so no client's", p)
	}
}
