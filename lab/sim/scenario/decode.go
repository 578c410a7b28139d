package scenario

import (
	"cmp"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
	"github.com/fairlead/fairlead/lab/sim/scenario/requests"
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
	s := &Scenario{Name: nameOf(r.File), Interval: defaultInterval, Seeds: 1, Clock: Scale, Packet: defaultPacket, Measures: Measures}
	var duration, interval int // the lines of these fields
	fields := map[string]reading.Field{
		"about":     r.Text(&s.About),
		"duration!": noted(&duration, r.Quantity(&s.Duration, reading.Seconds, 1e-3, reading.MostSeconds)),
		"interval":  noted(&interval, r.Quantity(&s.Interval, reading.Seconds, 1e-3, reading.MostSeconds)),
		"seeds":     r.Whole(&s.Seeds, 1, reading.MostSeeds),
		"clock":     reading.Word(&r.Reader, &s.Clock, Clocks),
		"packet":    r.Whole(&s.Packet, 20, 65535),
		"topology!": func(n *yaml.Node, at string) { r.topology(n, at, &s.Topology) },
		"load!": func(n *yaml.Node, at string) {
			if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
				r.Refuse(n.Line, at, "no load is defined")
			}
			r.List(n, at, func(n *yaml.Node, at string) { s.Load = append(s.Load, r.load(n, at)) })
		},
		"events": func(n *yaml.Node, at string) {
			r.List(n, at, func(n *yaml.Node, at string) { s.Events = append(s.Events, r.event(n, at)) })
		},
		"measures": func(n *yaml.Node, at string) {
			s.Measures = nil
			r.List(n, at, func(n *yaml.Node, at string) {
				var m Measure
				reading.Word(&r.Reader, &m, Measures)(n, at)
				s.Measures = append(s.Measures, m)
			})
		},
		"goals": func(n *yaml.Node, at string) {
			r.Object(n, at, map[string]reading.Field{
				"failed": r.Quantity(&s.Goals.Failed, reading.Share, 0, 1),
				"p99":    r.Quantity(&s.Goals.P99, reading.Seconds, 0, reading.MostSeconds),
			})
		},
	}
	if r.held == nil {
		fields["services!"] = func(n *yaml.Node, at string) {
			r.List(n, at, func(n *yaml.Node, at string) { s.Services = append(s.Services, r.service(n, at)) })
		}
	}
	r.Object(n, "", fields)
	s.line = cmp.Or(interval, duration)
	return s
}

// noted reads a value and records its line.
func noted(line *int, read reading.Field) reading.Field {
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
	fields := map[string]reading.Field{
		"links": func(n *yaml.Node, at string) {
			r.List(n, at, func(n *yaml.Node, at string) { t.Links = append(t.Links, r.link(n, at)) })
		},
		"lans": func(n *yaml.Node, at string) {
			r.List(n, at, func(n *yaml.Node, at string) { t.LANs = append(t.LANs, r.lan(n, at)) })
		},
	}
	for _, role := range roles {
		fields[string(role)] = func(n *yaml.Node, at string) {
			r.List(n, at, func(n *yaml.Node, at string) { t.Groups = append(t.Groups, r.group(n, at, role)) })
		}
	}
	r.Object(n, at, fields)
}

func (r *reader) group(n *yaml.Node, at string, role Role) Group {
	g := Group{Role: role, Line: n.Line, Present: -1, ECMP: Resilient, Tail: Fixed, Cores: 1, Weight: 1}
	fields := map[string]reading.Field{
		"name!": r.Name(&g.Name, &g.Line),
		"count": r.Whole(&g.Count, 1, reading.MostNodes),
	}
	switch role {
	case Router:
		fields["ecmp"] = reading.Word(&r.Reader, &g.ECMP, []ECMP{Resilient, Plain, Modulo})
		fields["buckets"] = r.Whole(&g.Buckets, 1, 65536)
	case Balancer:
		if r.held != nil {
			fields["only"] = r.nameOfService(&g.Only)
		}
		fields["present"] = r.Whole(&g.Present, 0, reading.MostNodes)
		fields["takes"] = r.Quantity(&g.Takes, reading.Seconds, 0, reading.MostSeconds)
		fields["cores"] = r.Whole(&g.Cores, 1, 4096)
		fields["queue"] = r.Whole(&g.Queue, 1, 1<<30)
	case Server:
		fields["takes"] = r.Quantity(&g.Takes, reading.Seconds, 0, reading.MostSeconds)
		fields["tail"] = reading.Word(&r.Reader, &g.Tail, tails)
		fields["cores"] = r.Whole(&g.Cores, 1, 4096)
		fields["queue"] = r.Whole(&g.Queue, 1, 1<<30)
		if r.held != nil { // the manifests determine their number and weights
			fields["of!"] = r.nameOfService(&g.Of)
			fields["spare"] = r.Whole(&g.Spare, 0, reading.MostNodes)
			delete(fields, "count")
			break
		}
		fields["present"] = r.Whole(&g.Present, 0, reading.MostNodes)
		fields["weight"] = func(n *yaml.Node, at string) {
			w := 1
			r.Whole(&w, 1, 65535)(n, at)
			g.Weight = uint32(w)
		}
	}
	r.Object(n, at, fields)
	if g.Present < 0 {
		g.Present = max(1, g.Count)
	}
	return g
}

func (r *reader) link(n *yaml.Node, at string) Link {
	l := Link{Line: n.Line}
	r.Object(n, at, map[string]reading.Field{
		"between!": r.pair(&l.Between, &l.Line),
		"rate!":    r.Quantity(&l.Rate, reading.Bits, 1, reading.MostBits),
		"delay":    r.Quantity(&l.Delay, reading.Seconds, 0, reading.MostSeconds),
		"queue":    r.Whole(&l.Queue, 1, 1<<30),
	})
	return l
}

func (r *reader) lan(n *yaml.Node, at string) LAN {
	l := LAN{Line: n.Line, Kind: Switched}
	r.Object(n, at, map[string]reading.Field{
		"name!":    r.Name(&l.Name, &l.Line),
		"kind":     reading.Word(&r.Reader, &l.Kind, []Medium{Switched, Shared}),
		"members!": r.refs(&l.Members),
		"rate!":    r.Quantity(&l.Rate, reading.Bits, 1, reading.MostBits),
		"delay":    r.Quantity(&l.Delay, reading.Seconds, 0, reading.MostSeconds),
		"queue":    r.Whole(&l.Queue, 1, 1<<30),
	})
	return l
}

func (r *reader) service(n *yaml.Node, at string) Service {
	s := Service{Line: n.Line, Method: service.DefaultMethod, Scheduler: service.DefaultScheduler, RingSize: service.DefaultRingSize,
		Timeout: defaultTimeout}
	r.Object(n, at, map[string]reading.Field{
		"name!":                 r.Name(&s.Name, &s.Line),
		"method":                reading.Word(&r.Reader, &s.Method, service.Methods),
		"scheduler":             reading.Word(&r.Reader, &s.Scheduler, service.Schedulers),
		"connectionConsistency": reading.Word(&r.Reader, &s.Survival, service.Survivals),
		"balancers":             r.refs(&s.Balancers),
		"servers!":              r.refs(&s.Servers),
		"timeout":               r.Quantity(&s.Timeout, reading.Seconds, 1e-3, reading.MostSeconds),
		"buckets": func(n *yaml.Node, at string) {
			r.Whole(&s.Buckets, 1, 1<<20)(n, at)
			if s.Buckets&(s.Buckets-1) != 0 {
				r.Refuse(n.Line, at, "%d is not a power of two", s.Buckets)
			}
		},
		"looks": r.Quantity(&s.Looks, reading.Seconds, 0, 1),
	})
	return s
}

func (r *reader) load(n *yaml.Node, at string) Load {
	l := Load{Line: n.Line, Protocol: TCP, Tail: Fixed, Requests: 1, Timeout: 1, Retries: defaultRetries}
	var times []requests.Asked
	r.Object(n, at, map[string]reading.Field{
		"from!":    r.ref(&l.From),
		"to!":      r.nameOfService(&l.To),
		"protocol": reading.Word(&r.Reader, &l.Protocol, []Protocol{TCP, UDP}),
		"answer":   r.Quantity(&l.Answer, reading.Bytes, 1, reading.MostBytes),
		"tail":     reading.Word(&r.Reader, &l.Tail, tails),
		"arrivals": reading.Word(&r.Reader, &l.Arrivals, []Arrivals{Steady, Poisson, Trace}),
		"rate":     r.Quantity(&l.Rate, reading.Plain, reading.LeastRate, reading.MostRate),
		"times": func(n *yaml.Node, at string) {
			r.List(n, at, func(n *yaml.Node, at string) {
				var t float64
				r.Quantity(&t, reading.Seconds, 0, reading.MostSeconds)(n, at)
				times = append(times, requests.Asked{At: t, Client: len(times)})
			})
		},
		"trace":    r.trace(&l.Trace),
		"start":    r.Quantity(&l.Start, reading.Seconds, 0, reading.MostSeconds),
		"end":      r.Quantity(&l.End, reading.Seconds, 0, reading.MostSeconds),
		"requests": r.Whole(&l.Requests, 1, 1_000_000),
		"pause":    r.Quantity(&l.Pause, reading.Seconds, 0, reading.MostSeconds),
		"timeout":  r.Quantity(&l.Timeout, reading.Seconds, 1e-3, reading.MostSeconds),
		"retries":  r.Whole(&l.Retries, 0, 100),
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
	act := func(a Action, read reading.Field) reading.Field {
		return func(n *yaml.Node, at string) {
			if e.Action != "" {
				r.Refuse(n.Line, at, "an event has one action: %s is another one", e.Action)
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
	fields := map[string]reading.Field{
		"at!":     r.Quantity(&e.At, reading.Seconds, 0, reading.MostSeconds),
		"noticed": r.Quantity(&e.Noticed, reading.Seconds, 0, reading.MostSeconds),
	}
	for _, a := range []Action{Dies, Leaves, Drains, Joins} {
		fields[string(a)] = act(a, one)
	}
	for _, a := range []Action{Cuts, Restores} {
		fields[string(a)] = act(a, two)
	}
	r.Object(n, at, fields)
	if e.Action == "" && n.Kind == yaml.MappingNode {
		r.Refuse(n.Line, at, "no action: want one of dies, leaves, drains, joins, cuts, restores")
	}
	return e
}
