package top

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
)

// Style is how a line is drawn.
type Style int

// Styles. Without color, Bad is bold, and Selected is reversed.
const (
	Plain Style = iota
	Title
	Head
	Selected
	Bad
	Warn
	Dim
)

// Line is one line of the screen.
type Line struct {
	Text string
	Style
}

const (
	// above and below are the numbers of lines around the rows of a page.
	above, below = 4, 2
	// gap separates columns.
	gap = "  "
	// narrowest is the smallest width to which a column is shortened.
	narrowest = 6
)

// rows returns how many rows fit.
func (m *Model) rows() int { return max(m.height-above-below, 1) }

// View returns the screen, as many lines as it is high.
func (m *Model) View() []Line {
	lines := []Line{{m.title(), Title}, {m.tabs(), Plain}, {m.path(), Dim}}
	switch {
	case m.help:
		lines = append(lines, helpLines()...)
	case m.page().tab == Node:
		lines = append(lines, m.node()...)
	case m.page().tab == Backend:
		lines = append(lines, m.backend()...)
	default:
		lines = append(lines, m.list(m.table(), m.rows(), true)...)
	}
	room := max(m.height-below, 0)
	lines = lines[:min(len(lines), room)]
	for len(lines) < room {
		lines = append(lines, Line{})
	}
	lines = append(lines, m.note(), Line{"enter open  esc back  / filter  n s u p b f sort  space pause  ? help  q quit", Dim})
	lines = lines[max(0, len(lines)-m.height):]
	for i := range lines {
		lines[i].Text = fit(lines[i].Text, m.width)
	}
	return lines
}

// title returns the totals of the node.
func (m *Model) title() string {
	r := m.sample.Report
	drops := 0.0
	for _, d := range r.Drops {
		drops += d.PerSecond
	}
	words := fmt.Sprintf("%s  %s  %s packets/s  %s bits/s  %s flows/s  %s drops/s",
		r.Node, r.Time.UTC().Format("15:04:05"), per(r.Total.Packets), per(r.Total.Bits), per(r.Total.Flows), per(drops))
	switch {
	case r.Time.IsZero():
		words = "connecting"
	case r.Seconds == 0:
		words = r.Node + "  measuring"
	}
	if m.paused {
		words = "PAUSED  " + words
	}
	return "fairlead top  " + words
}

// tabs returns the tabs with their keys, the current one in brackets.
func (m *Model) tabs() string {
	var words []string
	for i, t := range Tabs {
		word := fmt.Sprintf("%d %s", i+1, t)
		if t == m.pages[0].tab {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// path returns which rows were opened, the filter and the number of rows.
func (m *Model) path() string {
	p := m.page()
	words := string(m.pages[0].tab)
	for _, o := range m.pages[1:] {
		switch o.tab {
		case Frontends:
			words += " > " + o.service
		case Backends:
			words += " > " + o.frontend
		default:
			words += " > " + o.backend
		}
	}
	if m.typing {
		words += "  filter: " + p.filter + "_"
	} else if p.filter != "" {
		words += "  filter: " + p.filter
	}
	if n := m.sample.Report.Matching; n > 0 {
		words += fmt.Sprintf("  %d of %d", min(p.cursor+1, n), n)
	}
	return words
}

// note explains the selected row, or why there is no answer.
func (m *Model) note() Line {
	t, p := m.table(), m.page()
	switch {
	case m.sample.Err != nil:
		return Line{printable(m.sample.Err.Error()), Bad}
	case m.sample.Report.Error != "":
		return Line{printable(m.sample.Report.Error), Bad}
	case p.tab != Backend && p.cursor < len(t.notes):
		return Line{t.notes[p.cursor], Plain}
	}
	return Line{}
}

// list returns the headings and up to n rows around the cursor.
func (m *Model) list(t table, n int, cursor bool) []Line {
	if len(t.rows) == 0 {
		return []Line{{"  nothing to show", Dim}}
	}
	p, first := m.page(), 0
	if cursor {
		first = max(0, min(p.cursor-n/2, len(t.rows)-n))
	}
	end := min(first+n, len(t.rows))
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
		if c.by != "" && c.by == p.sort {
			titles[i] += map[bool]string{false: "*", true: "-"}[p.reverse]
		}
	}
	shown := append([][]string{titles}, t.rows[first:end]...)
	widths := widthsOf(shown, t.columns, m.width-2)
	var lines []Line
	for i, row := range shown {
		line := Line{"  " + join(row, widths, t.columns), Head}
		if i > 0 {
			if line.Style = t.styles[first+i-1]; cursor && first+i-1 == p.cursor {
				line.Style, line.Text = Selected, "> "+line.Text[2:]
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// widthsOf returns the widths of columns: what they need or, if that is more than there
// is, less for loose columns and then for the widest ones.
func widthsOf(rows [][]string, columns []column, width int) []int {
	widths := make([]int, len(columns))
	total := len(gap) * (len(widths) - 1)
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i]
	}
	for i, c := range columns {
		if less := min(total-width, widths[i]-narrowest); c.loose && less > 0 {
			widths[i], total = widths[i]-less, total-less
		}
	}
	for ; total > width; total-- {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= narrowest {
			break
		}
		widths[widest]--
	}
	return widths
}

func join(row []string, widths []int, columns []column) string {
	cells := make([]string, len(row))
	for i, text := range row {
		text = fit(text, widths[i])
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
		if columns[i].right {
			cells[i] = pad + text
		} else {
			cells[i] = text + pad
		}
	}
	return strings.TrimRight(strings.Join(cells, gap), " ")
}

// fit shortens a text to a width.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// printable replaces what a terminal would interpret: names and errors come from others.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// per formats a rate in at most five characters.
func per(x float64) string {
	const units = "kMGTPE"
	unit := ""
	for i := 0; x >= 999.5 && i < len(units); i++ {
		x, unit = x/1000, units[i:i+1]
	}
	switch {
	case x == 0:
		return "0"
	case x < 9.95:
		return fmt.Sprintf("%.1f%s", x, unit)
	}
	return fmt.Sprintf("%.0f%s", x, unit)
}

// facts returns names and values, one per line, without those that are empty.
func facts(pairs ...string) (lines []Line) {
	for i := 0; i < len(pairs); i += 2 {
		if value := printable(pairs[i+1]); value != "" {
			lines = append(lines, Line{fmt.Sprintf("  %-12s%s", pairs[i], value), Plain})
		}
	}
	return lines
}

// backend returns the page of a backend: its state, its frontends, and its events.
func (m *Model) backend() []Line {
	r := m.sample.Report
	if len(r.Rows) == 0 {
		return []Line{{"  nothing to show", Dim}}
	}
	b := r.Rows[0]
	lines := facts("backend", b.Backend, "name", b.Name, "node", b.Node)
	health := b.Health
	if !b.Since.IsZero() {
		health += " for " + status.Age(b.Since, r.Time)
	}
	state := append(facts("health", health), facts("last error", b.LastError)...)
	for i := range state {
		state[i].Style = styleOf(b)
	}
	lines = append(append(lines, state...), Line{})
	lines = append(lines, m.list(m.table(), max((m.height-len(lines)-above-below)/2, 1), false)...)
	host, _, _ := net.SplitHostPort(b.Backend)
	return append(lines, m.recent(func(e event.Event) bool { return e.Object == event.Object{Kind: "Backend", Name: host} }, changeOf)...)
}

// recent returns the latest events of some kind, each with some words.
func (m *Model) recent(is func(event.Event) bool, words func(event.Event) string) []Line {
	lines := []Line{{}, {"  EVENTS", Head}}
	for _, e := range slices.Backward(m.events) {
		if !is(e) || len(lines) > 20 {
			continue
		}
		style := Plain
		if e.Severity == event.Warning {
			style = Warn
		}
		lines = append(lines, Line{printable(fmt.Sprintf("  %s  %s  %s", e.Last.UTC().Format(time.TimeOnly), e.Type, words(e))), style})
	}
	if len(lines) == 2 {
		return append(lines, Line{"  none", Dim})
	}
	return lines
}

// node returns the page of the node.
func (m *Model) node() []Line {
	s, r := m.sample.Status, m.sample.Report
	plane := ""
	if s.DataPlane != nil {
		plane = strings.Join(append([]string{s.DataPlane.Kind}, s.DataPlane.Attached...), ", ")
	}
	lines := facts("node", s.Node, "role", s.Role, "version", s.Version, "kernel", s.Kernel, "up", status.Age(s.Started, s.Time), "data plane", plane,
		"traffic", fmt.Sprintf("%s packets/s, %s bits/s, %s flows/s", per(r.Total.Packets), per(r.Total.Bits), per(r.Total.Flows)),
		"drain", s.DrainWords(), "peers", fmt.Sprint(len(s.Peers)), "degraded", fmt.Sprint(len(s.Degraded)), "problems", fmt.Sprint(len(s.Problems)))
	for i := range s.Problems {
		if i < 5 {
			lines = append(lines, Line{"  " + printable(s.Problems[i].String()), Bad})
		}
	}
	return append(lines, m.recent(func(event.Event) bool { return true }, func(e event.Event) string { return e.Object.String() + "  " + changeOf(e) })...)
}

func helpLines() []Line {
	var lines []Line
	for l := range strings.Lines(help) {
		lines = append(lines, Line{"  " + strings.TrimSuffix(l, "\n"), Plain})
	}
	return lines
}

const help = `1 to 8, tab     another view
up, down, j, k  select a row; also pgup, pgdn, home, end
enter           open the row: Service, frontend, backend
esc             back
/               filter by name, address, node or state: enter ends, esc clears
n s u p b f     sort by name, state, up, packets, bits, new flows;
                the same key again reverses the order
space           pause
q               quit

UP is how many backends pass their health checks. Rates are those between two
readings of the counters: packets to backends, bits from the IP header on, and
new flows where they are counted. The line below the rows explains the selected
one.`
