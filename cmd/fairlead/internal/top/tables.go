package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
)

// column is one of a table.
type column struct {
	title string
	right bool
	by    rates.Column
	// loose columns are shortened first: the line below the rows has their text.
	loose bool
}

// table is the rows of a page.
type table struct {
	columns []column
	rows    [][]string
	// ids identify the rows, notes explain them, styles color them.
	ids, notes []string
	styles     []Style
}

func (t *table) add(id, note string, style Style, cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	t.rows, t.ids, t.notes, t.styles = append(t.rows, cells), append(t.ids, id), append(t.notes, printable(note)), append(t.styles, style)
}

// only keeps rows that contain a text.
func (t table) only(filter string) table {
	if filter == "" {
		return t
	}
	kept := table{columns: t.columns}
	for i, row := range t.rows {
		if strings.Contains(strings.ToLower(strings.Join(append(slices.Clone(row), t.notes[i]), "\n")), strings.ToLower(filter)) {
			kept.add(t.ids[i], t.notes[i], t.styles[i], row...)
		}
	}
	return kept
}

// table returns the rows of the current page.
func (m *Model) table() table {
	p := m.page()
	switch p.tab {
	case Services, Frontends, Backends, Backend:
		return rateTable(p.tab, p.service != "", m.sample.Report, m.sample.Report.Time)
	case Peers:
		return peerTable(m.sample.Status).only(p.filter)
	case Drains:
		return drainTable(m.sample.Status).only(p.filter)
	case Drops:
		return dropTable(m.sample.Report.Drops).only(p.filter)
	case Events:
		return eventTable(m.events).only(p.filter)
	}
	return table{}
}

// rateColumns are the last columns of rows with rates.
var rateColumns = []column{{"PACKETS/S", true, rates.ByPackets, false}, {"BITS/S", true, rates.ByBits, false}, {"FLOWS/S", true, rates.ByFlows, false}}

func rateTable(tab Tab, ofService bool, r rates.Report, now time.Time) table {
	name, state, up := column{title: "SERVICE", by: rates.ByName}, column{title: "STATE", by: rates.ByState}, column{"UP", true, rates.ByUp, false}
	var t table
	switch tab {
	case Services:
		t.columns = []column{name, state, up}
	case Frontends:
		t.columns = []column{{title: "FRONTEND", by: rates.ByName}, {title: "SERVICE"}, state, up}
		if ofService {
			t.columns = slices.Delete(t.columns, 1, 2)
		}
	case Backends:
		t.columns = []column{{title: "BACKEND", by: rates.ByName}, {title: "NODE"}, {title: "HEALTH", by: rates.ByState}, {title: "STATE"}}
	case Backend:
		t.columns = []column{{title: "FRONTEND", by: rates.ByName}, {title: "SERVICE"}, {title: "STATE", by: rates.ByState}, {title: "WEIGHT", right: true}}
	}
	t.columns = append(t.columns, rateColumns...)
	for _, row := range r.Rows {
		t.add(row.ID(), noteOf(row, now), styleOf(row), append(cells(tab, ofService, row), per(row.Packets), per(row.Bits), per(row.Flows))...)
	}
	return t
}

// cells returns what precedes the rates of a row.
func cells(tab Tab, ofService bool, r rates.Row) []string {
	up := fmt.Sprintf("%d/%d", r.Up, r.Backends)
	switch {
	case tab == Services:
		return []string{r.Service, r.State, up}
	case tab == Frontends && ofService:
		return []string{r.Frontend, r.State, up}
	case tab == Frontends:
		return []string{r.Frontend, r.Service, r.State, up}
	case tab == Backends:
		return []string{r.Backend, r.Node, r.Health, r.State}
	}
	weight := ""
	if r.Weight != nil {
		weight = fmt.Sprint(*r.Weight)
	}
	return []string{r.Frontend, r.Service, r.State, weight}
}

// noteOf explains a row in one line.
func noteOf(r rates.Row, now time.Time) string {
	if r.Backend == "" {
		if r.Reason == "" {
			return ""
		}
		return r.State + ": " + r.Reason
	}
	words := r.Name
	if r.Frontends > 1 {
		words += fmt.Sprintf(" of %d frontends", r.Frontends)
	}
	if !r.Since.IsZero() {
		words += fmt.Sprintf(" %s for %s", r.Health, status.Age(r.Since, now))
	}
	if r.LastError != "" {
		words += ": " + r.LastError
	}
	return strings.TrimSpace(words)
}

// styleOf colors a row by what is wrong.
func styleOf(r rates.Row) Style {
	switch {
	case r.Backend != "" && (r.Health == "down" || r.Health == "removed"):
		return Bad
	case r.Backend != "" && (r.State != "in-service" || r.Health == "unknown"):
		return Warn
	case r.Backend != "" || r.State == "active" && r.Up == r.Backends || r.State == string(status.Idle):
		return Plain
	case r.State == "active" || r.State == "draining":
		return Warn
	}
	return Bad
}

func peerTable(s status.Status) table {
	t := table{columns: []column{{title: "PEER"}, {title: "AS"}, {title: "STATE"}, {title: "SINCE"}, {title: "BFD"}, {title: "RECEIVED", right: true}, {title: "SENT", right: true}, {title: "LAST ERROR", loose: true}}}
	for _, p := range s.Peers {
		name, as, style := p.Address, "", Plain
		if p.Name != "" && p.Name != p.Address {
			name = p.Name + " " + p.Address
		}
		if p.AS != 0 {
			as = fmt.Sprint(p.AS)
		}
		if p.LastError != "" {
			style = Bad
		}
		t.add(p.Address, p.LastError, style, name, as, p.State, status.Age(p.Since, s.Time), p.BFD, fmt.Sprint(p.Received), fmt.Sprint(p.Sent), p.LastError)
	}
	return t
}

// drainTable shows the drain of the node, routes whose withdrawal is not confirmed, and
// frontends that stay until it is.
func drainTable(s status.Status) table {
	t := table{columns: []column{{title: "OBJECT"}, {title: "STATE"}, {title: "SINCE"}, {title: "FLOWS", right: true}, {title: "REASON", loose: true}}}
	if d := s.Drain; d != nil {
		t.add("node", s.DrainWords(), Warn, "node "+s.Node, string(d.Stage), status.Age(d.Since, s.Time), fmt.Sprint(d.Flows), strings.Join(d.Reasons, "; "))
	}
	for _, w := range s.Withdrawing {
		why := fmt.Sprintf("not confirmed by %s: %s", w.From, w.Reason)
		t.add("route "+w.Prefix.String(), why, Warn, "route "+w.Prefix.String(), "withdrawing", status.Age(w.Since, s.Time), "", why)
	}
	for _, l := range s.Leaving {
		t.add(l.Frontend, l.Reason, Warn, l.Frontend, "leaving", status.Age(l.Since, s.Time), "", l.Reason)
	}
	return t
}

func dropTable(drops []rates.Drop) table {
	t := table{columns: []column{{title: "REASON"}, {title: "BY"}, {title: "PACKETS/S", right: true}, {title: "TOTAL", right: true}}}
	for _, d := range drops {
		style := Plain
		if d.PerSecond > 0 {
			style = Warn
		}
		t.add(d.At+" "+d.Reason, "docs/troubleshooting.md#drop-reasons explains "+d.Reason, style, d.Reason, d.At, per(d.PerSecond), fmt.Sprint(d.Total))
	}
	return t
}

// eventTable shows the latest event first.
func eventTable(events []event.Event) table {
	t := table{columns: []column{{title: "TIME"}, {title: "TYPE"}, {title: "OBJECT"}, {title: "CHANGE", loose: true}}}
	for _, e := range slices.Backward(events) {
		style := Plain
		if e.Severity == event.Warning {
			style = Warn
		}
		object, change := strings.TrimSpace(e.Object.String()+" "+e.Field), changeOf(e)
		t.add(fmt.Sprint(e.ID), fmt.Sprintf("%s, %d times: %s", object, e.Count, change), style, e.Last.UTC().Format(time.TimeOnly), string(e.Type), object, change)
	}
	return t
}

// changeOf returns "up -> down: connection refused", or what of it is known.
func changeOf(e event.Event) string {
	change := e.Change()
	if change != "" && e.Cause != "" {
		change += ": "
	}
	return change + e.Cause
}
