package diff

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/agent/status"
)

// Sheet shows one line per change.
func (r Report) Sheet() status.Sheet {
	s := status.Sheet{Value: r}
	for _, p := range r.Problems {
		s.Lines = append(s.Lines, "rejected, the previous version stays in use: "+p.String())
	}
	if r.Empty() {
		s.Lines = append(s.Lines, "no changes")
		return s
	}
	s.Lines = append(s.Lines, fmt.Sprintf("connections at risk: %d", r.Connections))
	s.Head = []string{"OBJECT", "CHANGE", "DETAILS"}
	for _, f := range r.Frontends {
		s.Rows = append(s.Rows, frontendRows(f)...)
	}
	for _, route := range r.Routes {
		change := map[Change]string{Added: "advertised", Removed: "withdrawn"}[route.Change]
		details := cmp.Or(route.To, route.From)
		if route.Change == Changed {
			details = route.From + " → " + route.To
		}
		s.Rows = append(s.Rows, []string{"route " + route.Prefix.String(), cmp.Or(change, string(route.Change)), details})
	}
	return s
}

func frontendRows(f Frontend) (rows [][]string) {
	object := f.Service.String() + " " + f.Frontend
	add := func(change, details string) {
		rows = append(rows, []string{object, change, details})
	}
	var details []string
	if f.Reason != "" {
		details = append(details, f.Reason)
	}
	if f.Slots > 0 && f.Change == Changed {
		details = append(details, fmt.Sprintf("%.1f %% of %d slots move", 100*f.SlotsMoved, f.Slots))
	}
	if f.Connections > 0 {
		details = append(details, connections(f.Connections)+" tracked")
	}
	add(string(f.Change), strings.Join(details, "; "))
	for _, one := range f.Fields {
		add(one.Field, one.From+" → "+one.To)
	}
	for _, b := range f.Backends {
		weights := cmp.Or(b.From, b.To)
		if b.From != "" && b.To != "" {
			weights = b.From + " → " + b.To
		}
		add("backend "+string(b.Change), fmt.Sprintf("%s, weight %s", b.Backend, weights))
	}
	for _, risk := range f.AtRisk {
		add("at risk", connections(risk.Connections)+": "+risk.Reason)
	}
	return rows
}

func connections(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}
