package lvs

import (
	"fmt"
	"strings"
)

var topologyNames = [...]string{Shared: "topology 1", Direct: "topology 2", Hierarchy: "hierarchy on topology 1", HierarchyDirect: "hierarchy on topology 2"}

// conditions returns what a figure's curves were run with, one line for the curves that
// differ in nothing else.
func (f *Figure) conditions() (lines []string) {
	var texts []string
	names := map[string][]string{}
	for _, c := range f.Series {
		text := c.conditions()
		if names[text] == nil {
			texts = append(texts, text)
		}
		names[text] = append(names[text], c.Name)
	}
	for _, text := range texts {
		lines = append(lines, strings.Join(names[text], ", ")+": "+text)
	}
	return lines
}

func (c Series) conditions() string {
	setups := c.setups()
	s := setups[0]
	span := func(unit string, of func(Setup) int) string {
		low, high := of(s), of(s)
		for _, o := range setups {
			low, high = min(low, of(o)), max(high, of(o))
		}
		switch {
		case low < high:
			return fmt.Sprintf("%d to %d %ss", low, high, unit)
		case low == 1:
			return "1 " + unit
		}
		return fmt.Sprintf("%d %ss", low, unit)
	}
	all := []string{
		topologyNames[s.Topology], fmt.Sprintf("LAN of %g Mbit/s", s.LAN/1e6), string(s.Method), string(s.Scheduler),
		span("server", func(s Setup) int { return s.Servers }), span("client", func(s Setup) int { return s.Clients }), s.load(),
	}
	if s.Uneven {
		all = append(all, "queues of 10,000 (load balancer), 50 and 150 packets, weights 1 and 3")
	} else {
		all = append(all, "queues of "+span("packet", func(s Setup) int { return s.Queue }))
	}
	all = append(all, s.special()...)
	return strings.Join(append(all, span("second", func(s Setup) int { return s.Seconds })), ", ")
}

func (s Setup) load() string {
	if s.Load == Odd {
		return fmt.Sprintf("a request after %g or %g ms at random, with 3 replies to each odd one", s.Every*500, s.Every*1000)
	}
	return fmt.Sprintf("a request every %g ms", s.Every*1000)
}

// special returns the conditions that few setups have.
func (s Setup) special() (all []string) {
	if s.PerPacket {
		all = append(all, "each request a new connection")
	}
	if s.Timeout > 0 {
		all = append(all, fmt.Sprintf("which ends after %.4g ms", s.Timeout*1000))
	}
	if s.Serving > 0 {
		all = append(all, fmt.Sprintf("servers send at most %g replies a second, clients have lines of 100 Mbit/s", s.Serving))
	}
	if s.Seed > 0 {
		all = append(all, fmt.Sprintf("seed %d", s.Seed))
	}
	return all
}
