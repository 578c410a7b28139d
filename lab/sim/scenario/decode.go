package scenario

import (
	"cmp"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/core/service"
)

// Defaults of a scenario.
const (
	defaultInterval = 1.0
	defaultPacket   = 500
	// defaultNoticed is the detection time of BFD with the agents' default: three times
	// 300 ms.
	defaultNoticed = 0.9
	// defaultMissed is the detection time of health checks with a Service's default: two
	// failures, a second apart, and the timeout of the second.
	defaultMissed  = 1.5
	defaultTimeout = 900.0 // of a connection in a load balancer's table, as in IPVS
	udpTimeout     = 300.0 // of a UDP flow there
	defaultRetries = 6     // as Linux has for SYNs
)

// scenario reads a whole file.
func (r *reader) scenario(n *yaml.Node) *Scenario {
	s := &Scenario{Name: nameOf(r.file), Interval: defaultInterval, Seeds: 1, Clock: Scale, Packet: defaultPacket, Measures: Measures}
	var duration, interval int // the lines of these fields
	fields := map[string]field{
		"about":     r.text(&s.About),
		"duration!": noted(&duration, r.quantity(&s.Duration, seconds, 1e-3, mostSeconds)),
		"interval":  noted(&interval, r.quantity(&s.Interval, seconds, 1e-3, mostSeconds)),
		"seeds":     r.whole(&s.Seeds, 1, mostSeeds),
		"clock":     word(&r.fieldReader, &s.Clock, Clocks),
		"packet":    r.whole(&s.Packet, 20, 65535),
		"topology!": func(n *yaml.Node, at string) { r.topology(n, at, &s.Topology) },
		"load!": func(n *yaml.Node, at string) {
			if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
				r.refuse(n.Line, at, "no load is defined")
			}
			r.list(n, at, func(n *yaml.Node, at string) { s.Load = append(s.Load, r.load(n, at)) })
		},
		"events": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) { s.Events = append(s.Events, r.event(n, at)) })
		},
		"measures": func(n *yaml.Node, at string) {
			s.Measures = nil
			r.list(n, at, func(n *yaml.Node, at string) {
				var m Measure
				word(&r.fieldReader, &m, Measures)(n, at)
				s.Measures = append(s.Measures, m)
			})
		},
		"goals": func(n *yaml.Node, at string) {
			r.object(n, at, map[string]field{
				"failed": r.quantity(&s.Goals.Failed, share, 0, 1),
				"p99":    r.quantity(&s.Goals.P99, seconds, 0, mostSeconds),
			})
		},
	}
	if r.held == nil {
		fields["services!"] = func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) { s.Services = append(s.Services, r.service(n, at)) })
		}
	}
	r.object(n, "", fields)
	s.line = cmp.Or(interval, duration)
	return s
}

// noted reads a value and records its line.
func noted(line *int, read field) field {
	return func(n *yaml.Node, at string) {
		*line = n.Line
		read(n, at)
	}
}

// nameOf returns a file's name without its folder and extension.
func nameOf(file string) string {
	base := path.Base(file)
	return strings.TrimSuffix(base, path.Ext(base))
}

func (r *reader) topology(n *yaml.Node, at string, t *Topology) {
	fields := map[string]field{
		"links": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) { t.Links = append(t.Links, r.link(n, at)) })
		},
		"lans": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) { t.LANs = append(t.LANs, r.lan(n, at)) })
		},
	}
	for _, role := range roles {
		fields[string(role)] = func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) { t.Groups = append(t.Groups, r.group(n, at, role)) })
		}
	}
	r.object(n, at, fields)
}

func (r *reader) group(n *yaml.Node, at string, role Role) Group {
	g := Group{Role: role, Line: n.Line, Present: -1, ECMP: Resilient, Tail: Fixed, Cores: 1, Weight: 1}
	fields := map[string]field{
		"name!": r.name(&g.Name, &g.Line),
		"count": r.whole(&g.Count, 1, mostNodes),
	}
	switch role {
	case Router:
		fields["ecmp"] = word(&r.fieldReader, &g.ECMP, []ECMP{Resilient, Plain, Modulo})
		fields["buckets"] = r.whole(&g.Buckets, 1, 65536)
	case Balancer:
		if r.held != nil {
			fields["only"] = r.nameOfService(&g.Only)
		}
		fields["present"] = r.whole(&g.Present, 0, mostNodes)
		fields["takes"] = r.quantity(&g.Takes, seconds, 0, mostSeconds)
		fields["cores"] = r.whole(&g.Cores, 1, 4096)
		fields["queue"] = r.whole(&g.Queue, 1, 1<<30)
	case Server:
		fields["takes"] = r.quantity(&g.Takes, seconds, 0, mostSeconds)
		fields["tail"] = word(&r.fieldReader, &g.Tail, tails)
		fields["cores"] = r.whole(&g.Cores, 1, 4096)
		fields["queue"] = r.whole(&g.Queue, 1, 1<<30)
		if r.held != nil { // the manifests determine their number and weights
			fields["of!"] = r.nameOfService(&g.Of)
			fields["spare"] = r.whole(&g.Spare, 0, mostNodes)
			delete(fields, "count")
			break
		}
		fields["present"] = r.whole(&g.Present, 0, mostNodes)
		fields["weight"] = func(n *yaml.Node, at string) {
			w := 1
			r.whole(&w, 1, 65535)(n, at)
			g.Weight = uint32(w)
		}
	}
	r.object(n, at, fields)
	if g.Present < 0 {
		g.Present = max(1, g.Count)
	}
	return g
}

func (r *reader) link(n *yaml.Node, at string) Link {
	l := Link{Line: n.Line}
	r.object(n, at, map[string]field{
		"between!": r.pair(&l.Between, &l.Line),
		"rate!":    r.quantity(&l.Rate, bits, 1, mostBits),
		"delay":    r.quantity(&l.Delay, seconds, 0, mostSeconds),
		"queue":    r.whole(&l.Queue, 1, 1<<30),
	})
	return l
}

func (r *reader) lan(n *yaml.Node, at string) LAN {
	l := LAN{Line: n.Line, Kind: Switched}
	r.object(n, at, map[string]field{
		"name!":    r.name(&l.Name, &l.Line),
		"kind":     word(&r.fieldReader, &l.Kind, []Medium{Switched, Shared}),
		"members!": r.refs(&l.Members),
		"rate!":    r.quantity(&l.Rate, bits, 1, mostBits),
		"delay":    r.quantity(&l.Delay, seconds, 0, mostSeconds),
		"queue":    r.whole(&l.Queue, 1, 1<<30),
	})
	return l
}

func (r *reader) service(n *yaml.Node, at string) Service {
	s := Service{Line: n.Line, Method: service.DefaultMethod, Scheduler: service.DefaultScheduler, RingSize: service.DefaultRingSize,
		Timeout: defaultTimeout}
	r.object(n, at, map[string]field{
		"name!":                 r.name(&s.Name, &s.Line),
		"method":                word(&r.fieldReader, &s.Method, service.Methods),
		"scheduler":             word(&r.fieldReader, &s.Scheduler, service.Schedulers),
		"connectionConsistency": word(&r.fieldReader, &s.Survival, service.Survivals),
		"balancers":             r.refs(&s.Balancers),
		"servers!":              r.refs(&s.Servers),
		"timeout":               r.quantity(&s.Timeout, seconds, 1e-3, mostSeconds),
		"buckets": func(n *yaml.Node, at string) {
			r.whole(&s.Buckets, 1, 1<<20)(n, at)
			if s.Buckets&(s.Buckets-1) != 0 {
				r.refuse(n.Line, at, "%d is not a power of two", s.Buckets)
			}
		},
		"looks": r.quantity(&s.Looks, seconds, 0, 1),
	})
	return s
}

func (r *reader) load(n *yaml.Node, at string) Load {
	l := Load{Line: n.Line, Protocol: TCP, Tail: Fixed, Requests: 1, Timeout: 1, Retries: defaultRetries}
	var times []Asked
	r.object(n, at, map[string]field{
		"from!":    r.ref(&l.From),
		"to!":      r.nameOfService(&l.To),
		"protocol": word(&r.fieldReader, &l.Protocol, []Protocol{TCP, UDP}),
		"answer":   r.quantity(&l.Answer, bytes, 1, mostBytes),
		"tail":     word(&r.fieldReader, &l.Tail, tails),
		"arrivals": word(&r.fieldReader, &l.Arrivals, []Arrivals{Steady, Poisson, Trace}),
		"rate":     r.quantity(&l.Rate, plain, leastRate, mostRate),
		"times": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) {
				var t float64
				r.quantity(&t, seconds, 0, mostSeconds)(n, at)
				times = append(times, Asked{At: t, Client: len(times)})
			})
		},
		"trace":    r.trace(&l.Trace),
		"start":    r.quantity(&l.Start, seconds, 0, mostSeconds),
		"end":      r.quantity(&l.End, seconds, 0, mostSeconds),
		"requests": r.whole(&l.Requests, 1, 1_000_000),
		"pause":    r.quantity(&l.Pause, seconds, 0, mostSeconds),
		"timeout":  r.quantity(&l.Timeout, seconds, 1e-3, mostSeconds),
		"retries":  r.whole(&l.Retries, 0, 100),
	})
	l.doubled = len(times) > 0 && len(l.Trace) > 0
	l.Trace = append(l.Trace, times...)
	if l.Arrivals == "" {
		l.Arrivals = Poisson
		if len(l.Trace) > 0 {
			l.Arrivals = Trace
		}
	}
	return l
}

// event reads an event. The action is the key whose value is the subject.
func (r *reader) event(n *yaml.Node, at string) Event {
	e := Event{Line: n.Line, Noticed: -1}
	act := func(a Action, read field) field {
		return func(n *yaml.Node, at string) {
			if e.Action != "" {
				r.refuse(n.Line, at, "an event has one action: %s is another one", e.Action)
			}
			e.Action = a
			read(n, at)
		}
	}
	one := func(n *yaml.Node, at string) {
		e.What = make([]Ref, 1)
		r.ref(&e.What[0])(n, at)
	}
	two := func(n *yaml.Node, at string) {
		var ends [2]Ref
		r.pair(&ends, &e.Line)(n, at)
		e.What = ends[:]
	}
	fields := map[string]field{
		"at!":     r.quantity(&e.At, seconds, 0, mostSeconds),
		"noticed": r.quantity(&e.Noticed, seconds, 0, mostSeconds),
	}
	for _, a := range []Action{Dies, Leaves, Drains, Joins} {
		fields[string(a)] = act(a, one)
	}
	for _, a := range []Action{Cuts, Restores} {
		fields[string(a)] = act(a, two)
	}
	r.object(n, at, fields)
	if e.Action == "" && n.Kind == yaml.MappingNode {
		r.refuse(n.Line, at, "no action: want one of dies, leaves, drains, joins, cuts, restores")
	}
	return e
}
