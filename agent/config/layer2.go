package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Layer2 configures how VIPs are answered by ARP and neighbor discovery.
type Layer2 struct {
	// Interfaces lists the interfaces on which to answer; empty: disabled.
	Interfaces []string
	// Members lists the addresses of all members of the election, including this node.
	// Empty: the load balancers that the source knows, otherwise only this node.
	Members      []string
	PasswordFile string
}

// ResolvedLayer2 is a valid Layer2 with all lookups done.
type ResolvedLayer2 struct {
	// Self is the address by which the other members know this node.
	Self     netip.Addr
	Members  []netip.Addr
	Password string
}

func (r *Resolved) resolveLayer2(p *parser) {
	l := r.Agent.Layer2
	if len(l.Interfaces) == 0 {
		if len(l.Members) > 0 || l.PasswordFile != "" {
			p.refuse("l2-interfaces", "required by --l2-members and --l2-password-file: set the interface to answer on")
		}
		return
	}
	for _, name := range l.Interfaces {
		if !slices.Contains(r.Interfaces, name) && r.DataPlane != "ipvs" {
			p.refuse("l2-interfaces", "packets for the VIPs arrive on %s: add it to --interface, too (now %s)", name, strings.Join(r.Interfaces, ", "))
		}
	}
	if file := l.PasswordFile; file != "" && !p.offline {
		var err error
		if r.Layer2.Password, err = ReadPassword(file); err != nil {
			p.refuse("l2-password-file", "%v", err)
		}
	}
	for _, text := range l.Members {
		if a := p.addr("l2-members", text); a.IsValid() {
			r.Layer2.Members = append(r.Layer2.Members, a)
		}
	}
	if !p.offline {
		r.Layer2.Self = p.self(r)
	}
}

// self returns the address of this node among the members or, if none are configured, the
// interface's own.
func (p *parser) self(r *Resolved) netip.Addr {
	members := r.Layer2.Members
	if len(members) == 0 {
		for _, a := range []netip.Addr{r.Source4, r.Source6} {
			if a.IsValid() {
				return a
			}
		}
		p.refuse("l2-interfaces", "interface %s has no address for the other members to know this node by", strings.Join(r.Interfaces[:min(1, len(r.Interfaces))], ""))
		return netip.Addr{}
	}
	own, _ := net.InterfaceAddrs()
	i := slices.IndexFunc(members, func(m netip.Addr) bool {
		return slices.ContainsFunc(own, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Addr().Unmap() == m
		})
	})
	if i < 0 {
		p.refuse("l2-members", "none is an address of this node: configure the same list of all members on every node")
		return netip.Addr{}
	}
	for _, m := range members {
		if m.Is4() != members[i].Is4() {
			p.refuse("l2-members", "%s and %s are of different families: members use one family", members[i], m)
		}
	}
	return members[i]
}
