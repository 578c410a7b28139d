package page

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sim/lvs"
)

// report has a figure that holds, over several seeds, and one that was
// interrupted.
func report() *lvs.Report {
	mean := lvs.Estimate{Mean: 2, Low: 1, High: 3}
	return &lvs.Report{
		Clock: lvs.Compat, Seeds: 20, Interrupted: true,
		Figures: []lvs.Outcome{
			{
				Figure: "fig8", Title: "Throughput & more", Verdict: lvs.Holds, Seeds: 20,
				Findings: []lvs.Finding{{Says: "the peak", Wanted: "1 to 3", Verdict: lvs.Holds, Found: &mean}},
				Curves:   []lvs.Curve{{Name: "NAT", Points: []lvs.Point{{X: 1000, Estimate: mean}, {X: 2000, Estimate: mean}}}},
			},
			{Figure: "fig9", Title: "Loss", Verdict: lvs.Unsettled},
		},
	}
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
	for _, want := range []string{"<svg", "Throughput &amp; more", "2 (1 to 3)", "Interrupted", `class="interrupted"`} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if got, want := string(read("fig8.csv")), "curve,x,mean,low,high,seeds\nNAT,1000,2,1,3,20\nNAT,2000,2,1,3,20\n"; got != want {
		t.Errorf("the table is\n%swant\n%s", got, want)
	}
	if _, err := png.Decode(bytes.NewReader(read("fig8.png"))); err != nil {
		t.Errorf("the picture: %v", err)
	}
	var back lvs.Report
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
	want := `FIGURE  VERDICT      FOUND       WANTED  CLAIM
fig8    holds                            Throughput & more
        - holds      2 (1 to 3)  1 to 3  the peak
fig9    interrupted                      Loss
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}
