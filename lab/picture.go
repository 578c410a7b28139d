package lab

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// String draws the topology as a tree with its first host as root:
//
//	client                client           192.168.0.10/24
//	└─ router             upstream router  192.168.0.1/24  10.0.0.110/16
//	   └═ nodes           node network (MTU 1600)
//	      ├═ reflector    route reflector  10.0.0.109/16
//	      └═ node1        node             10.0.0.105/16
//	         └─ web1      server           172.16.1.20/32
//
// Links that would close a loop are listed below it.
func (t Topology) String() string {
	p := picture{topology: t, seen: map[string]bool{}, below: map[string][]*Link{}}
	for _, h := range t.Hosts {
		if !p.seen[h.Name] {
			p.span(h.Name)
			p.draw(h.Name, "", "", nil, nil)
		}
	}
	return p.text()
}

type picture struct {
	topology Topology
	seen     map[string]bool
	below    map[string][]*Link // the links to the children of a host
	drawn    []*Link
	rows     [][3]string // the tree, a description, the addresses
}

// span finds the tree below a root, breadth first: each node is where it is nearest to
// the root.
func (p *picture) span(root string) {
	p.seen[root] = true
	for queue := []string{root}; len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		for i := range p.topology.Links {
			l := &p.topology.Links[i]
			other := l.other(name).Host
			if l.A.Host != name && l.B.Host != name || p.seen[other] {
				continue
			}
			p.seen[other] = true
			p.below[name] = append(p.below[name], l)
			p.drawn = append(p.drawn, l)
			queue = append(queue, other)
		}
	}
}

// branches are the connectors to a host or, true, to a switch.
var branches = map[bool]string{false: "─ ", true: "═ "}

// draw adds a host's row and those below it; from is the link to its parent, above the
// one before that.
func (p *picture) draw(name, lead, indent string, from, above *Link) {
	is, addrs, isSwitch := p.describe(name)
	if from.mtu() != above.mtu() {
		is = strings.TrimSpace(fmt.Sprintf("%s (MTU %d)", is, from.mtu()))
	}
	p.rows = append(p.rows, [3]string{lead + name, is, addrs})
	for i, l := range p.below[name] {
		corner, under := "├", "│  "
		if i == len(p.below[name])-1 {
			corner, under = "└", "   "
		}
		child := l.other(name).Host
		p.draw(child, indent+corner+branches[isSwitch || p.isSwitch(child)], indent+under, l, from)
	}
}

func (p *picture) isSwitch(name string) bool {
	return slices.ContainsFunc(p.topology.Switches, func(s SwitchSpec) bool { return s.Name == name })
}

// describe returns what a host or switch is, and its addresses.
func (p *picture) describe(name string) (is, addrs string, isSwitch bool) {
	for _, s := range p.topology.Switches {
		if s.Name == name {
			return s.Is, "", true
		}
	}
	var own []string
	for _, h := range p.topology.Hosts {
		if h.Name == name {
			is, own = h.Is, slices.Clone(h.Loopback)
		}
	}
	for _, l := range p.topology.Links {
		for _, e := range []End{l.A, l.B} {
			if e.Host == name {
				own = append(own, e.Addrs...)
			}
		}
	}
	return is, strings.Join(few(distinct(own)), "  "), false
}

// few shortens a row: the first addresses and how many more there are.
func few(all []string) []string {
	const most = 6
	if len(all) <= most {
		return all
	}
	return append(all[:2:2], fmt.Sprintf("and %d more", len(all)-2))
}

// mtu returns the MTU of a link; for nil, the default.
func (l *Link) mtu() int {
	if l == nil || l.MTU == 0 {
		return defaultMTU
	}
	return l.MTU
}

func distinct(all []string) []string {
	var once []string
	for _, s := range all {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

func (p *picture) text() string {
	var b strings.Builder
	if p.topology.Title != "" {
		b.WriteString(p.topology.Title + "\n\n")
	}
	var width [2]int
	for _, r := range p.rows {
		for i := range width {
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	for _, r := range p.rows {
		line := pad(r[0], width[0]) + "  " + pad(r[1], width[1]) + "  " + r[2]
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	for i := range p.topology.Links {
		if l := &p.topology.Links[i]; !slices.Contains(p.drawn, l) {
			fmt.Fprintf(&b, "also: %s %s ─ %s %s\n", l.A.Host, l.A.Dev, l.B.Host, l.B.Dev)
		}
	}
	return b.String()
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", width-utf8.RuneCountInString(s))
}

// other is the end that does not belong to name.
func (l *Link) other(name string) End {
	if l.A.Host == name {
		return l.B
	}
	return l.A
}
