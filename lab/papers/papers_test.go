package papers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEveryNumberedItemHasARow compares the rows with the numbers of figures and tables in
// the papers. A row about a part of a figure has its number as a prefix.
func TestEveryNumberedItemHasARow(t *testing.T) {
	for paper, items := range map[string][]string{
		"000": append(numberedItems(13), "figA1"),
		"001": append(numberedItems(45), "table1"),
		"002": {"routing-latency", "search-tree", "add-rule", "add-rule-iptables", "add-rule-ipvs", "bandwidth", "batch-requests", "batch-latency"},
		"003": append(numberedItems(13), "table1"),
		"004": numberedItems(7),
	} {
		for _, item := range items {
			if !slices.ContainsFunc(IDs(), Selection{paper + "/" + item}.has) {
				t.Errorf("no row for %s/%s", paper, item)
			}
		}
	}
}

func numberedItems(figures int) (all []string) {
	for n := range figures {
		all = append(all, fmt.Sprintf("fig%d", n+1))
	}
	return all
}

func TestRowsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range All() {
		for i := range p.Rows {
			r := &p.Rows[i]
			id := p.id(r)
			if seen[id] {
				t.Errorf("%s is there twice", id)
			}
			seen[id] = true
			kinds := 0
			for _, text := range []string{r.Experiment, r.Missing, r.Unknowable, r.Drawing} {
				if text != "" {
					kinds++
				}
			}
			if kinds != 1 || r.Title == "" {
				t.Errorf("%s: want a title and one of experiment, missing, unknowable and drawing: %+v", id, r)
			}
			if (r.Claim == "") != (r.Drawing != "") {
				t.Errorf("%s: want either a claim or a drawing", id)
			}
			if r.Experiment == "" {
				continue
			}
			if (len(r.Tests) > 0) == (r.Figure != "") || r.Theirs == "" || r.Ours == "" {
				t.Errorf("%s: want both set-ups, and either tests or a simulated figure", id)
			}
			if !slices.ContainsFunc(experiments, func(e Experiment) bool { return e.Name == r.Experiment }) {
				t.Errorf("%s: no experiment %s", id, r.Experiment)
			}
		}
	}
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		only, has, not string
	}{
		{"000", "000/fig1", "001/fig1"},
		{"000/fig10", "000/fig10a 000/fig10b 000/fig10a-iptables", "000/fig11"},
		{"001/fig1", "001/fig1", "001/fig10 001/fig19"},
	} {
		for _, id := range strings.Fields(c.has) {
			if !(Selection{c.only}).has(id) {
				t.Errorf("%s does not select %s", c.only, id)
			}
		}
		for _, id := range strings.Fields(c.not) {
			if (Selection{c.only}).has(id) {
				t.Errorf("%s selects %s", c.only, id)
			}
		}
	}
	if err := (Selection{"000", "005/fig1"}).Validate(); err == nil || !strings.Contains(err.Error(), "005/fig1") {
		t.Errorf("a row that does not exist: %v", err)
	}
}
