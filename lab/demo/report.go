package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/design"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"seconds": func(ms float64) float64 { return ms / 1000 },
}).Parse(reportHTML))

const reportCSS = `
.tiers { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: var(--gap) }
.tiers section { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 8px; align-content: start }
.tiers h3 { grid-column: 1 / -1 }
`

// report is what the template shows.
type report struct {
	*Result
	Topology             string
	Rates                []template.HTML
	Spread, Convergences template.HTML
}

// WriteReport writes the run as a self-contained HTML file.
func (r *Result) WriteReport(file, topology string) error {
	page := report{Result: r, Topology: topology, Rates: make([]template.HTML, 2)}
	for into, c := range map[*template.HTML]design.Chart{
		&page.Rates[0]: r.rates("Requests answered, by backend", "requests/s", func(s Sample) map[string]float64 { return s.PerServer }),
		&page.Rates[1]: r.rates("Packets forwarded, by load balancer", "packets/s", func(s Sample) map[string]float64 { return s.PerBalancer }),
		&page.Spread:   r.spread(), &page.Convergences: r.convergences(),
	} {
		figure, err := design.Figure(c)
		if err != nil {
			return err
		}
		*into = template.HTML(figure)
	}
	var body bytes.Buffer
	if err := reportTemplate.Execute(&body, page); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, design.Page("Fairlead demo", body.String(), reportCSS), 0o644)
}

// Headline says what the run has shown.
func (r report) Headline() string {
	if !r.Passed {
		return "Failed"
	}
	return fmt.Sprintf("Passed: load balancers and backends came, went and failed under load, and %d of %d requests failed", r.Load.Failed, r.Load.Requests)
}

// Broken is the number of connections that broke.
func (r report) Broken() (n uint64) {
	for _, e := range r.Events {
		n += e.BrokenConnections
	}
	return n
}

// Killed is the event in which a load balancer was killed, or nil.
func (r report) Killed() *Event {
	i := slices.IndexFunc(r.Events, func(e Event) bool { return e.Name == KillBalancer && e.ConvergedMs >= 0 })
	if i < 0 {
		return nil
	}
	return &r.Events[i]
}

// tier is a part of the topology and what happened to each of its members.
type tier struct {
	Title   string
	Members []member
}

type member struct {
	Name  string
	Notes []note
}

type note struct{ Class, Text string }

// Tiers lists load balancers and backends with what happened to them, and when.
func (r report) Tiers() []tier {
	var balancers, backends []string
	for _, s := range r.Services {
		balancers = append(balancers, s.Balancers...)
	}
	for _, s := range r.samples {
		balancers = append(balancers, sortedKeys(s.PerBalancer)...)
		backends = append(backends, sortedKeys(s.PerServer)...)
	}
	return []tier{{"Load balancers", r.members(balancers)}, {"Backends", r.members(backends)}}
}

func (r report) members(names []string) (all []member) {
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		m := member{Name: name}
		for _, e := range r.Events {
			if e.Subject != name {
				continue
			}
			m.Notes = append(m.Notes, note{classes[e.verb()], fmt.Sprintf("%s at %.1f s", past[e.verb()], e.StartedMs/1000)})
		}
		if len(m.Notes) == 0 {
			m.Notes = []note{{"muted", "unchanged"}}
		}
		all = append(all, m)
	}
	return all
}

// verb is "kill" of kill-balancer.
func (e Event) verb() string {
	verb, _, _ := strings.Cut(e.Name, "-")
	return verb
}

// past and classes describe events by their verbs.
var (
	past    = map[string]string{"add": "added", "remove": "removed", "kill": "killed", "cut": "disconnected", "drain": "drained"}
	classes = map[string]string{"add": "good", "remove": "warn", "drain": "warn", "kill": "bad", "cut": "bad"}
)

// smooth is the number of samples, of a tenth of a second each, of which a chart shows the
// mean: a request more or less in one sample is not an event.
const smooth = 5

// rates is a line for each name over time, with the events.
func (r *Result) rates(title, unit string, of func(Sample) map[string]float64) design.Chart {
	c := design.Chart{Title: title, Kind: design.Lines, Group: "load", X: design.Axis{Label: "time since the start of the load", Unit: "s"}, Y: design.Axis{Unit: unit}}
	var names []string
	for _, s := range r.samples {
		names = append(names, sortedKeys(of(s))...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		line := design.Series{Name: name}
		for i, s := range r.samples {
			around, sum := r.samples[max(0, i-smooth/2):min(len(r.samples), i+smooth/2+1)], 0.0
			for _, near := range around {
				sum += of(near)[name]
			}
			line.Points = append(line.Points, design.Point{X: s.At.Seconds(), Y: sum / float64(len(around))})
		}
		c.Series = append(c.Series, line)
	}
	for _, e := range r.Events {
		c.Events = append(c.Events, design.Event{
			At: e.StartedMs / 1000, Name: e.Name + " " + e.Subject, Bad: classes[e.verb()] == "bad",
			Detail: fmt.Sprintf("converged in %.1f ms, %d failed", e.ConvergedMs, e.Failed),
		})
	}
	return c
}

// spread is each backend's share while nothing changed.
func (r *Result) spread() design.Chart {
	c := design.Chart{Title: "Share of the requests, by backend", Kind: design.Bars, Y: design.Axis{Unit: "%"}}
	for _, name := range sortedKeys(r.Shares) {
		c.Bars = append(c.Bars, design.Bar{Name: name, Value: 100 * r.Shares[name]})
	}
	return c
}

// convergences is how long each event took to converge, and how long it may.
func (r *Result) convergences() design.Chart {
	c := design.Chart{Title: "Time until converged, and the longest that passes (logarithmic)", Kind: design.Bars, Y: design.Axis{Unit: "ms", Log: true}}
	for _, e := range r.Events {
		b := design.Bar{Name: e.Name, Value: max(e.ConvergedMs, 0), Goal: r.bound(e.Name)}
		if b.Bad = e.ConvergedMs < 0 || e.ConvergedMs > b.Goal; e.ConvergedMs < 0 {
			b.Note = "never"
		}
		c.Bars = append(c.Bars, b)
	}
	return c
}
