package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/design"
)

func report() *Report {
	r := New("test")
	r.Rows = append(r.Rows,
		Row{Case: "plain", Measured: 12.34, Unit: "ns", Min: 11, Max: 13.9, Runs: 5},
		Row{Case: "reached", Measured: 50, Unit: "ns", Min: 50, Max: 50, Runs: 1}.AtMost(50),
		Row{Case: "missed", Measured: 0.5, Unit: "broken", Min: 0.5, Max: 0.5, Runs: 1}.AtMost(0).ComparedWith("Katran", 1004),
	)
	r.Note("%d runs", 5)
	return r
}

func TestGoalsAreJudged(t *testing.T) {
	if got := report().Missed(); !slices.Equal(got, []string{"missed"}) {
		t.Errorf("missed %q", got)
	}
}

// Other programs depend on the field names.
func TestJSON(t *testing.T) {
	path, err := report().WriteJSON(t.TempDir() + "/a/b")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name, Commit, Machine, Kernel, Started string
		Rows                                   []map[string]any
		Notes                                  []string
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(path, "/a/b/test.json") || got.Name != "test" || got.Commit == "" || got.Machine == "" || got.Kernel == "" || got.Started == "" || len(got.Notes) != 1 {
		t.Errorf("%s: %+v", path, got)
	}
	for i, want := range [][]string{
		{"case", "max", "measured", "min", "runs", "unit"},
		{"case", "goal", "max", "measured", "met", "min", "runs", "unit"},
		{"case", "goal", "max", "measured", "met", "min", "peer", "peerMeasured", "runs", "unit"},
	} {
		var names []string
		for name := range got.Rows[i] {
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("row %d has %q, want %q", i, names, want)
		}
	}
	if got.Rows[1]["met"] != true || got.Rows[2]["met"] != false || got.Rows[2]["goal"] != 0.0 {
		t.Errorf("rows %v", got.Rows)
	}
}

// ReadJSON reads what WriteJSON wrote, and rejects files that are not reports.
func TestReadJSON(t *testing.T) {
	path, err := report().WriteJSON(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadJSON(path)
	if err != nil || len(got.Rows) != 3 || !slices.Equal(got.Missed(), []string{"missed"}) || got.Name != "test" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"no JSON": "x", "no rows": `{"name":"a","rows":[]}`, "no name": `{"rows":[{"case":"a"}]}`,
		"half a goal": `{"name":"a","rows":[{"case":"a","goal":1}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadJSON(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadJSON(path + "-not"); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := report().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"CASE     MEASURED  MIN   MAX   GOAL   MET  PEER         UNIT",
		"plain    12.3      11    13.9                           ns",
		"reached  50        50    50    <= 50  yes               ns",
		"missed   0.50      0.50  0.50  <= 0   no   Katran 1004  broken",
	}
	if got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"); !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

func TestTableAlternating(t *testing.T) {
	var out strings.Builder
	r := &Report{Rows: []Row{
		Plain("start", "s", 2, 3, 4).Alternating("theirs:", []float64{2, 3, 4}, []float64{8, 6, 400}),
		Plain("lost", "requests", 0).Alternating("theirs:", []float64{0}, []float64{0}),
	}}
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"CASE   MEASURED  MIN  MAX  GOAL  MET  PEER       UNIT      / PEER  FROM   TO",
		"start  3         2    4               theirs: 8  s         0.25    1/100  0.50",
		"lost   0         0    0               theirs: 0  requests                 ",
	}
	if got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"); !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

// A case that takes twice as long as its floor has the ratio 2 in every round, no matter
// how long a round takes.
func TestRatiosAreOfRounds(t *testing.T) {
	floor, of := []float64{60, 90, 61, 120, 62}, []float64{120, 180, 122, 240, 124}
	r := RatioTo("bare", of, floor)
	if want := (Spread{2, 2, 2, 2, 2}); r.Times != want {
		t.Errorf("ratios %+v", r.Times)
	}
	if want := (Spread{Median: 62, Min: 60, Max: 120, Low: 61, High: 90}); r.Raw != want {
		t.Errorf("the floor's own %+v, want %+v", r.Raw, want)
	}
	row := OverFloor("case", UnitTimes, of, r).AtMost(1.9)
	if row.Measured != 2 || row.Min != 2 || row.Max != 2 || *row.Met || row.Raw.Median != 124 {
		t.Errorf("%+v", row)
	}
}

func TestPairedTable(t *testing.T) {
	var out strings.Builder
	floor, of := []float64{50, 50, 50, 50, 50}, []float64{60, 70, 75, 80, 100}
	r := &Report{Rows: []Row{
		OverFloor("paired", UnitTimes, of, RatioTo("bare", of, floor), RatioTo("large", of, []float64{75, 75, 75, 75, 75})).AtMost(1.6),
		TimesFaster("faster", "peer", of, []float64{120, 140, 150, 160, 210}).AtLeast(2.5),
		Plain("several", "ms", 1, 2, 3, 4, 5),
		Plain("one", "s", 6.5).AtMost(6),
	}}
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"CASE     MEASURED  WITHIN       HERE  GOAL      MET  PEER      FLOORS",
		"paired   1.500 x   1.400-1.600  75    <= 1.600  yes            1.50 x bare (50), 1.00 x large (75)",
		"faster   2.000 x   2.000-2.100  75    >= 2.500  no   peer 150  ",
		"several  3 ms      2-4                                         ",
		"one      6.5 s                        <= 6      no             ",
	}
	if got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"); !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

// The ranks of a median's confidence interval follow from the binomial distribution: all
// six of six figures, the 6th and 15th of twenty (as in published tables).
func TestMedianInterval(t *testing.T) {
	for n, want := range map[int][2]float64{1: {1, 1}, 5: {1, 5}, 6: {1, 6}, 8: {1, 8}, 9: {2, 8}, 10: {2, 9}, 20: {6, 15}, 31: {10, 22}} {
		var all []float64
		for i := range n {
			all = append(all, float64(n-i))
		}
		if low, high := medianInterval(all); low != want[0] || high != want[1] {
			t.Errorf("of %d: %v to %v, want %v", n, low, high, want)
		}
	}
}

// A comparison misses its goal only if the whole interval is above the goal.
func TestCompared(t *testing.T) {
	now, then := []float64{105, 106, 107}, []float64{100, 100, 100}
	for name, c := range map[string]struct {
		ratios []float64
		met    bool
	}{
		"slower":       {[]float64{1.05, 1.06, 1.05, 1.06, 1.07, 1.05}, false},
		"perhaps not":  {[]float64{1.05, 1.06, 1.05, 1.02, 1.07, 1.05}, true},
		"not at least": {[]float64{0.99, 1.01, 1, 1, 1, 1}, true},
	} {
		r := Compared(name, "ns", "v1", now, then, c.ratios).NotAbove(1.03)
		if *r.Met != c.met || r.Raw.Median != 106 || *r.PeerMeasured != 100 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	var out strings.Builder
	r := &Report{Rows: []Row{Compared("case", "ns", "v1", now, then, []float64{1.0521, 1.06, 1.05}).NotAbove(1.03)}}
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	if want := "case  1.052     1.050  1.060  <= 1.030  no   v1, ns 100  x"; !strings.Contains(out.String(), want) {
		t.Errorf("%s has no %q", out.String(), want)
	}
}

// TestRowsKeepTheirSamples: anyone who tests a claim needs them in the order of the rounds.
func TestRowsKeepTheirSamples(t *testing.T) {
	for _, row := range []Row{Plain("plain", "ms", 3, 1, 2), Estimated("estimated", "ms", 3, 1, 2)} {
		if !slices.Equal(row.Samples, []float64{3, 1, 2}) || row.Measured != 2 {
			t.Errorf("%s: %v, %g", row.Case, row.Samples, row.Measured)
		}
	}
}

// TestPage: the headline, a bar for each goal, the table, and the notes, escaped.
func TestPage(t *testing.T) {
	r := report()
	r.Rows = append(r.Rows, Plain("a <fast> one", "packets/s", 50).AtLeast(100))
	r.Charts = []design.Chart{{Title: "over time", Kind: design.Lines}}
	path, err := r.WritePage(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"goals are missed: ", "a &lt;fast&gt; one</td>", `"name":"a \u003cfast\u003e one","value":2,"goal":1,"note":"(50 packets/s)","bad":true`, "over time</figcaption>", "<th>measured</th>",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
