// Package top is the live view of fairlead top: rates, peers, drains, drops and events of
// one agent. A Model holds what is shown; keys and samples change it, and View renders it
// as lines. Both are pure. Run does the rest: it queries the agent and draws on the
// terminal. Computing rates is up to agent/rates.
package top

import (
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
)

// Tab is what a page shows.
type Tab string

// Tabs, in the order of their keys 1 to 8. Backend is the page of one backend.
const (
	Services  Tab = "services"
	Frontends Tab = "frontends"
	Backends  Tab = "backends"
	Node      Tab = "node"
	Peers     Tab = "peers"
	Drains    Tab = "drains"
	Drops     Tab = "drops"
	Events    Tab = "events"
	Backend   Tab = "backend"
)

// Tabs lists the tabs.
var Tabs = []Tab{Services, Frontends, Backends, Node, Peers, Drains, Drops, Events}

// page is one view. Opening a row puts another page on top of it.
type page struct {
	tab Tab
	// service, frontend and backend are the rows that were opened.
	service, frontend, backend string
	sort                       rates.Column
	reverse                    bool
	filter                     string
	// cursor is the selected row, and selected what it shows once the user has moved it.
	cursor   int
	selected string
}

// Model is the state of the view.
type Model struct {
	width, height int
	pages         []page
	// paused keeps the last sample, typing reads a filter, help shows the keys.
	paused, typing, help bool
	interval             time.Duration
	sample               Sample
	// events are the latest ones, oldest first.
	events []event.Event
	quit   bool
}

// maxEvents are shown.
const maxEvents = 500

// Wants is what a page needs of the agent.
type Wants struct {
	Query rates.Query
	// Status and Events say whether it needs the state of the node, and events since a
	// time.
	Status, Events bool
	Since          time.Time
}

// same reports whether two pages need the same objects.
func (w Wants) same(o Wants) bool {
	q, r := w.Query, o.Query
	return w.Status == o.Status && q.View == r.View && q.Service == r.Service && q.Frontend == r.Frontend && q.Backend == r.Backend
}

// Sample is what an agent answered.
type Sample struct {
	// For is what was wanted: after a key, an answer may be for another page.
	For    Wants
	Report rates.Report
	Status status.Status
	Events []event.Event
	// Err is why there is no answer.
	Err error
}

// New returns a model that begins with a tab.
func New(t Tab, sort rates.Column, filter string, interval time.Duration) *Model {
	return &Model{width: 80, height: 24, interval: interval, pages: []page{{tab: t, sort: sort, filter: filter}}}
}

// Resize sets the size of the terminal.
func (m *Model) Resize(width, height int) { m.width, m.height = max(width, 1), max(height, 1) }

// Done reports whether the user has left.
func (m *Model) Done() bool { return m.quit }

// Paused reports whether the last sample stays.
func (m *Model) Paused() bool { return m.paused }

func (m *Model) page() *page { return &m.pages[len(m.pages)-1] }

// Wants returns what the current page needs.
func (m *Model) Wants() Wants {
	p := m.page()
	q := rates.Query{
		View: rates.Node, Sort: p.sort, Reverse: p.reverse, Filter: p.filter,
		Service: p.service, Frontend: p.frontend, Backend: p.backend, Interval: m.interval,
		// Enough for a page further down.
		Limit: min(p.cursor+2*m.height, rates.MaxLimit),
	}
	w := Wants{Status: p.tab == Node || p.tab == Peers || p.tab == Drains}
	switch p.tab {
	case Services, Frontends, Backends:
		q.View = rates.View(p.tab)
	case Backend:
		q.View, q.Service, q.Frontend, q.Filter = rates.Backends, "", "", ""
	default:
		q.Filter = ""
	}
	w.Query = q
	if w.Events = p.tab == Events || p.tab == Backend || p.tab == Node; w.Events && len(m.events) > 0 {
		w.Since = m.events[len(m.events)-1].Last
	}
	return w
}

// Answered takes an answer of the agent.
func (m *Model) Answered(s Sample) {
	if s.Err != nil {
		m.sample.Err = s.Err
		return
	}
	m.events = merge(m.events, s.Events)
	if !s.For.same(m.Wants()) {
		return // for the previous page
	}
	m.sample = s
	m.follow()
}

// merge adds events to others, of which they may be newer versions.
func merge(all, more []event.Event) []event.Event {
	for _, e := range more {
		all = slices.DeleteFunc(all, func(o event.Event) bool { return o.ID == e.ID })
	}
	all = append(all, more...)
	return all[max(0, len(all)-maxEvents):]
}

// follow keeps the cursor on the row that the user has selected.
func (m *Model) follow() {
	p, t := m.page(), m.table()
	if i := slices.Index(t.ids, p.selected); p.selected != "" && i >= 0 {
		p.cursor = i
	}
	p.cursor = max(0, min(p.cursor, len(t.ids)-1))
}

// Key handles a key: a character, or a name such as "enter".
func (m *Model) Key(k string) {
	switch {
	case k == "ctrl+c":
		m.quit = true
	case m.typing:
		m.edit(k)
	case m.help:
		m.help = false
	case m.navigate(k), m.arrange(k), m.toggle(k):
	}
}

// edit changes the filter.
func (m *Model) edit(k string) {
	p := m.page()
	switch {
	case k == "enter":
		m.typing = false
	case k == "esc":
		m.typing, p.filter = false, ""
	case k == "backspace":
		if r := []rune(p.filter); len(r) > 0 {
			p.filter = string(r[:len(r)-1])
		}
	case len([]rune(k)) == 1 && len(p.filter) < 100:
		p.filter += k
	}
	p.cursor, p.selected = 0, ""
}

func (m *Model) toggle(k string) bool {
	switch k {
	case "q":
		m.quit = true
	case "?", "h":
		m.help = true
	case "/":
		m.typing = true
	case " ":
		m.paused = !m.paused
	default:
		return false
	}
	return true
}

// columns are the keys of columns.
var columns = map[string]rates.Column{
	"n": rates.ByName, "s": rates.ByState, "u": rates.ByUp, "p": rates.ByPackets, "b": rates.ByBits, "f": rates.ByFlows,
}

// arrange sorts by a column, and backwards if it is sorted by it already.
func (m *Model) arrange(k string) bool {
	column, ok := columns[k]
	if !ok {
		return false
	}
	p := m.page()
	p.reverse = p.sort == column && !p.reverse
	p.sort, p.cursor, p.selected = column, 0, ""
	return true
}

// navigate moves the cursor, or to another page.
func (m *Model) navigate(k string) bool {
	p, page := m.page(), max(m.rows()-1, 1)
	switch k {
	case "up", "k":
		m.move(p.cursor - 1)
	case "down", "j":
		m.move(p.cursor + 1)
	case "pgup":
		m.move(p.cursor - page)
	case "pgdn":
		m.move(p.cursor + page)
	case "home":
		m.move(0)
	case "end":
		m.move(rates.MaxLimit)
	case "enter", "right":
		m.open()
	case "esc", "left", "backspace":
		m.back()
	case "tab", "backtab":
		m.next(k == "tab")
	default:
		i := strings.Index("12345678", k)
		if i < 0 || len(k) != 1 {
			return false
		}
		m.show(Tabs[i])
	}
	return true
}

func (m *Model) move(to int) {
	p, ids := m.page(), m.table().ids
	p.cursor = max(0, min(to, len(ids)-1))
	p.selected = ""
	if p.cursor > 0 {
		p.selected = ids[p.cursor]
	}
}

// next shows the next or the previous tab.
func (m *Model) next(forward bool) {
	i, step := slices.Index(Tabs, m.pages[0].tab), 1
	if !forward {
		step = len(Tabs) - 1
	}
	m.show(Tabs[(i+step)%len(Tabs)])
}

// show begins again with a tab.
func (m *Model) show(t Tab) { m.turn([]page{{tab: t, sort: rates.ByPackets}}) }

// open opens the selected row.
func (m *Model) open() {
	p, rows := *m.page(), m.sample.Report.Rows
	if p.tab != Services && p.tab != Frontends && p.tab != Backends || p.cursor >= len(rows) {
		return
	}
	row := rows[p.cursor]
	next := page{sort: rates.ByPackets, service: row.Service, frontend: row.Frontend, backend: row.Backend}
	next.tab = map[Tab]Tab{Services: Frontends, Frontends: Backends, Backends: Backend}[p.tab]
	m.turn(append(m.pages, next))
}

// back returns to the previous page or, without one, removes the filter.
func (m *Model) back() {
	if len(m.pages) > 1 {
		m.turn(m.pages[:len(m.pages)-1])
		return
	}
	m.page().filter = ""
}

// turn changes the pages. Rows of another page are not shown.
func (m *Model) turn(pages []page) {
	m.pages = pages
	m.sample.Report.Rows, m.sample.Report.Matching, m.sample.Report.All = nil, 0, 0
}
