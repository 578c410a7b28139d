package scenario

import (
	"fmt"
	"slices"
)

// ways checks that clients can reach load balancers, and load balancers can reach
// servers.
func (c *checker) ways() {
	r := c.regions()
	for i, l := range c.s.Load {
		s := c.service(l.To.Name)
		balancers := r.apart(c.all(s.Balancers))
		for _, client := range c.find(l.From, "") {
			if b := r.missed(c, client, balancers); b != "" {
				c.Refuse(l.Line, fmt.Sprintf("load[%d]", i), "no path from %s to the balancer %s of %s%s", client, b, s.Name, joinThem)
				break
			}
		}
	}
	for i, s := range c.s.Services {
		balancers := r.apart(c.all(s.Balancers))
		for _, server := range c.all(s.Servers) {
			if b := r.missed(c, server, balancers); b != "" {
				c.Refuse(s.Line, fmt.Sprintf("services[%d]", i), "no path from the balancer %s to the server %s%s", b, server, joinThem)
				break
			}
		}
	}
}

const joinThem = ": join them by links, routers and LANs"

// all returns all members that checked names refer to.
func (c *checker) all(refs []Ref) (names []string) {
	for _, ref := range refs {
		names = append(names, c.find(ref, "")...)
	}
	return names
}

// regions contains the routers, load balancers and LANs that can reach each other, as a
// forest: each region has one root.
type regions map[string]string

// regions connects everything that forwards packets.
func (c *checker) regions() regions {
	r := regions{}
	for name, m := range c.who {
		for _, door := range m.doors {
			if c.sendsOn(name) && c.sendsOn(door) {
				r[r.root(name)] = r.root(door)
			}
		}
	}
	return r
}

func (c *checker) sendsOn(name string) bool {
	if m := c.who[name]; m != nil {
		return m.group.Role == Router || m.group.Role == Balancer
	}
	return true // a LAN
}

func (r regions) root(name string) string {
	for {
		up, ok := r[name]
		if !ok || up == name {
			return name
		}
		if over, ok := r[up]; ok {
			r[name] = over
		}
		name = up
	}
}

// apart returns the first load balancer in each region. A member that reaches it also reaches
// the others in its region.
func (r regions) apart(balancers []string) (firsts []string) {
	seen := map[string]bool{}
	for _, b := range balancers {
		if root := r.root(b); !seen[root] {
			seen[root] = true
			firsts = append(firsts, b)
		}
	}
	return firsts
}

// missed returns a load balancer that a member cannot reach, or "".
func (r regions) missed(c *checker, from string, balancers []string) string {
	at := []string{r.root(from)}
	for _, door := range c.who[from].doors {
		if c.sendsOn(door) {
			at = append(at, r.root(door))
		}
	}
	for _, b := range balancers {
		if !slices.Contains(at, r.root(b)) {
			return b
		}
	}
	return ""
}
