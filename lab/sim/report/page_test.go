package report

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/lvs"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// report has a figure that holds over several seeds, and an interrupted one.
func report() *Report {
	mean := verdict.Estimate{Mean: 2, Low: 1, High: 3}
	return &Report{Report: lvs.Report{
		Clock: lvs.Compat, Seeds: 20, Interrupted: true,
		Figures: []lvs.Outcome{
			{
				Figure: "fig8", Title: "Throughput & more", Verdict: verdict.Holds, Seeds: 20, Conditions: []string{"NAT: queues of 100 packets"},
				Findings: []verdict.Finding{{Text: "the peak", Wanted: "1 to 3", Verdict: verdict.Holds, Found: &mean}},
				Curves:   []verdict.Curve{{Name: "NAT", Points: []verdict.Point{{X: 1000, Estimate: mean}, {X: 2000, Estimate: mean}}}},
			},
			{Figure: "fig9", Title: "Loss", Verdict: verdict.Unsettled},
		},
	}, Experiments: []experiments.Outcome{{
		Experiment: "deep", Title: "How deep", Question: "How deep is best?", Params: map[string]float64{"servers": 100000}, Verdict: verdict.Holds, Seeds: 20,
		Tables: []experiments.Means{{
			Name: "loss", Title: "Lost, by level", Keys: []string{"level"}, Columns: []string{"packets", "share"},
			Rows: []experiments.MeanRow{{Keys: []string{"1"}, Values: []*verdict.Estimate{&mean, nil}}},
		}},
		Pictures: []experiments.Drawing{
			{Name: "rate", LogX: true, LogY: true, Curves: []verdict.Curve{{Name: "2 levels", Points: []verdict.Point{{X: 0, Estimate: mean}, {X: 10, Estimate: mean}, {X: 20}}}}},
			{Name: "nothing", LogX: true, LogY: true, Curves: []verdict.Curve{{Name: "2 levels", Points: []verdict.Point{{X: 10}}}}},
		},
	}}}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sim")
	path, err := Write(dir, report())
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	html := string(read(filepath.Base(path)))
	for _, want := range []string{"<svg", "Throughput &amp; more", "2 (1 to 3)", "Interrupted", `class="interrupted"`, "How deep is best?", "servers 1e&#43;05", "NAT: queues of 100 packets"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if got, want := string(read("fig8.csv")), "curve,x,mean,low,high,seeds\nNAT,1000,2,1,3,20\nNAT,2000,2,1,3,20\n"; got != want {
		t.Errorf("the table is\n%swant\n%s", got, want)
	}
	if got, want := string(read("deep-loss.csv")), "level,measure,mean,low,high,seeds\n1,packets,2,1,3,20\n"; got != want {
		t.Errorf("an experiment's table is\n%swant\n%s", got, want)
	}
	for _, name := range []string{"deep-rate.png", "deep-nothing.png"} {
		if _, err := png.Decode(bytes.NewReader(read(name))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := png.Decode(bytes.NewReader(read("fig8.png"))); err != nil {
		t.Errorf("the picture: %v", err)
	}
	var back Report
	if err := json.Unmarshal(read("results.json"), &back); err != nil || len(back.Figures) != 2 || back.Figures[0].Curves[0].Points[1].Mean != 2 {
		t.Errorf("the results come back as %+v: %v", back, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "fig9.svg")); err == nil {
		t.Error("a figure without curves has a picture")
	}
}

func TestWriteTable(t *testing.T) {
	var out bytes.Buffer
	if err := WriteTable(&out, report()); err != nil {
		t.Fatal(err)
	}
	want := `Lost, by level
level  packets     share
1      2 (1 to 3)  -

FIGURE  VERDICT      FOUND       WANTED  CLAIM
fig8    holds                            Throughput & more
        - holds      2 (1 to 3)  1 to 3  the peak
fig9    interrupted                      Loss
deep    holds                            How deep is best?
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

func TestWriteMarkdown(t *testing.T) {
	r := report()
	r.Figures[0].Findings = append(r.Figures[0].Findings, verdict.Finding{Text: "a | b", Wanted: "<= 1", Verdict: verdict.Unknown, Reason: "why"})
	var out bytes.Buffer
	if err := WriteMarkdown(&out, r); err != nil {
		t.Fatal(err)
	}
	want := `| | verdict | seeds | what is claimed | found | wanted |
|---|---|---|---|---|---|
| **fig8** | **holds** | 20 | Throughput & more | | |
| | holds | | the peak | 2 (1 to 3) | 1 to 3 |
| | cannot be known | | a \| b [why] |  | &lt;= 1 |
| **fig9** | **interrupted** | 0 | Loss | | |
| **deep** | **holds** | 20 | How deep is best? | | |
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
