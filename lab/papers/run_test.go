package papers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/lvs"
)

// faked replaces all experiments by run for one test.
func faked(t *testing.T, run func(o Options, e string, m *Measured) error) {
	real := experiments
	t.Cleanup(func() { experiments = real })
	experiments = nil
	for _, e := range real {
		e.run = func(_ context.Context, o Options, m *Measured) error { return run(o, e.Name, m) }
		experiments = append(experiments, e)
	}
}

func options(t *testing.T, only ...string) Options {
	o := Options{Only: only, Length: Short, Repetitions: 2, Dir: t.TempDir(), Progress: t.Output()}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	return o
}

func find(t *testing.T, r *Report, id string) *Result {
	for i := range r.Rows {
		if r.Rows[i].ID() == id {
			return &r.Rows[i]
		}
	}
	t.Fatalf("no row %s", id)
	return nil
}

// TestRun runs an experiment twice, and then finds its results.
func TestRun(t *testing.T) {
	o, runs := options(t, "000/sec5.2-kill"), 0
	faked(t, func(_ Options, _ string, m *Measured) error {
		runs++
		m.Samples = map[string][]float64{"failures: fairlead: a balancer's process is killed": {9, 10, 11}}
		return nil
	})
	if !o.NeedsRoot() {
		t.Error("needs no root")
	}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	row := find(t, report, "000/sec5.2-kill")
	if runs != 2 || row.Verdict != Holds || row.N != 6 || row.Interval == nil || row.Command != "fairlead-lab papers --only 000/sec5.2-kill" {
		t.Errorf("%d runs: %+v", runs, row)
	}
	if other := find(t, report, "000/fig12a"); other.Verdict != NotMeasured {
		t.Errorf("a row that was not selected: %s", other.Verdict)
	}
	if _, err := Run(t.Context(), o); err != nil || runs != 2 {
		t.Errorf("the second time: %d runs, %v", runs, err)
	}
	o.Fresh = true
	if _, err := Run(t.Context(), o); err != nil || runs != 4 {
		t.Errorf("fresh: %d runs, %v", runs, err)
	}
}

// TestPrograms: only experiments with an API server need programs of Kubernetes.
func TestPrograms(t *testing.T) {
	if with, without := options(t, "002/central").Programs(), options(t, "001").Programs(); len(with) != 3 || len(without) != 0 {
		t.Errorf("%q with a cluster, %q without", with, without)
	}
}

// TestRunResumes fails in the second repetition, twice, and measures only that again.
func TestRunResumes(t *testing.T) {
	o := options(t, "000/fig12a", "000/sec5.2-kill")
	broken, demos := true, 0
	faked(t, func(_ Options, e string, m *Measured) error {
		if e == demonstration {
			demos++
		}
		if e == demonstration && broken && m.Repetition == 2 {
			return errors.New("a broken demo")
		}
		m.Samples = map[string][]float64{"next hops, table a": {1}}
		return nil
	})
	report, err := Run(t.Context(), o)
	if row := find(t, report, "000/fig12a"); err == nil || row.Verdict != Failed || !strings.Contains(row.Reason, "a broken demo") {
		t.Errorf("%+v, %v", row, err)
	}
	if row := find(t, report, "000/sec5.2-kill"); row.Verdict != CannotKnow {
		t.Errorf("the other experiment did not run: %+v", row)
	}
	broken = false
	if report, err = Run(t.Context(), o); err != nil || demos != 4 || find(t, report, "000/fig12a").Verdict != Holds {
		t.Errorf("%d demos, %v", demos, err)
	}
}

// TestRunRepeatsAFailure fails in the first attempt only. The row names that.
func TestRunRepeatsAFailure(t *testing.T) {
	o, runs := options(t, "000/fig12a"), 0
	faked(t, func(_ Options, _ string, m *Measured) error {
		if runs++; runs == 1 {
			return errors.New("a broken demo")
		}
		m.Samples = map[string][]float64{"next hops, table a": {1}}
		return nil
	})
	report, err := Run(t.Context(), o)
	if row := find(t, report, "000/fig12a"); err != nil || runs != 3 || row.Verdict != Holds || !strings.Contains(row.Reason, "repetition 1 had failed before: a broken demo") {
		t.Errorf("%d runs: %+v, %v", runs, row, err)
	}
}

// TestSimulatorAddsFigures runs one small figure, and then another one next to it.
func TestSimulatorAddsFigures(t *testing.T) {
	faked(t, func(o Options, _ string, m *Measured) error {
		for _, f := range m.lacking(o.Only) {
			m.Figures = append(m.Figures, lvs.Outcome{Figure: f.Name})
		}
		return nil
	})
	o := options(t, "001/fig11")
	if o.NeedsRoot() {
		t.Error("a simulation needs root")
	}
	report, err := Run(t.Context(), o)
	if err != nil || find(t, report, "001/fig9").Verdict != NotMeasured {
		t.Fatal(err, find(t, report, "001/fig9").Verdict)
	}
	o.Only = Selection{"001/fig9"}
	report, err = Run(t.Context(), o)
	if err != nil || len(load(o.Dir, Short, simulator, 1).Figures) != 2 || find(t, report, "001/fig11").Repetitions != 2 {
		t.Errorf("%v: %+v", err, find(t, report, "001/fig11"))
	}
	o.Only, o.Repetitions = Selection{"001/fig10"}, 3
	report, err = Run(t.Context(), o)
	if n := find(t, report, "001/fig11").Repetitions; err != nil || n != 2 {
		t.Errorf("a third repetition of another figure: %d of fig11, %v", n, err)
	}
}

// TestVersions: figures added later may be of another version.
func TestVersions(t *testing.T) {
	m := &Measured{}
	for _, version := range []string{"1.0", "1.0", "1.1", "1.0"} {
		m.made(version)
	}
	if m.Version != "1.0, 1.1" {
		t.Errorf("%q", m.Version)
	}
}

func TestWrite(t *testing.T) {
	o := options(t, "000")
	faked(t, func(_ Options, _ string, m *Measured) error {
		m.Samples = map[string][]float64{
			"throughput: links of 20 Mbit/s, 1 balancers": {19, 19}, "throughput: links of 20 Mbit/s, 2 balancers": {38, 38.1}, "failures: fairlead: a balancer's process is killed": {5000, 5001},
		}
		return nil
	})
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	path, err := report.Write(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	html, _ := os.ReadFile(path)
	for _, want := range []string{`id="000/fig13a"`, `class="chart"`, "links of 20 Mbit/s (here)", `<b class="does-not-hold">does not hold</b>`, "cannot be known here", "fairlead-lab papers --only 000/fig13a", "a cloud, which this machine does not have"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	text, _ := os.ReadFile(filepath.Join(o.Dir, "papers.json"))
	var back Report
	if err := json.Unmarshal(text, &back); err != nil || len(back.Rows) != len(report.Rows) || back.Count[DoesNot] == 0 {
		t.Errorf("the results come back as %d rows: %v", len(back.Rows), err)
	}
	var table bytes.Buffer
	if err := report.WriteTable(&table, Selection{"000/sec5.2-kill"}); err != nil || !strings.Contains(table.String(), "does not hold") || strings.Contains(table.String(), "fig13a") || !strings.Contains(table.String(), report.Summary()) {
		t.Errorf("the table: %v\n%s", err, &table)
	}
}

// TestDefaultRepetitions runs quick experiments twice, and others once.
func TestDefaultRepetitions(t *testing.T) {
	o, runs := options(t, "000/sec5.2-kill", "000/fig10a"), map[string]int{}
	o.Repetitions = 0
	faked(t, func(_ Options, e string, m *Measured) error {
		runs[e]++
		m.Samples = map[string][]float64{}
		return nil
	})
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{ecmpFailures: 2, webGuest: 1, webBalancers: 1}; !maps.Equal(runs, want) {
		t.Errorf("ran %v, want %v", runs, want)
	}
}

// TestMarkdown writes a row that does not hold to the page of the documentation.
func TestMarkdown(t *testing.T) {
	o := options(t, "000/sec5.2-kill")
	faked(t, func(_ Options, _ string, m *Measured) error {
		m.Samples = map[string][]float64{"failures: fairlead: a balancer's process is killed": {900, 901, 902}}
		return nil
	})
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	text := report.Markdown()
	row := regexp.MustCompile(`\n\| 000/sec5\.2-kill \| .* \| \*\*does not hold\*\* \| SIGKILL: .*: 901 \(.*\) ms, wanted ≤ 100 \|`)
	if !row.MatchString(text) || strings.Contains(text, "000/fig1 ") {
		t.Errorf("the page lacks the row, or has rows without a claim:\n%s", text)
	}
}
