// Package bench is the common form of all benchmarks: rows of figures beside
// their goals and the peers' figures, as a table and as JSON. The experiments
// live below it.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/sim/claim"
)

// Report is one run of a benchmark. Its JSON field names are stable.
type Report struct {
	Name    string    `json:"name"`
	Commit  string    `json:"commit"`
	Machine string    `json:"machine"`
	Kernel  string    `json:"kernel"`
	Started time.Time `json:"started"`
	Rows    []Row     `json:"rows"`
	Notes   []string  `json:"notes"`
}

// Row is one figure. Measured is the median of Runs, where there are several.
type Row struct {
	Case     string  `json:"case"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Min      float64 `json:"min"`
	Max      float64 `json:"max"`
	Runs     int     `json:"runs"`
	// Peer is whose figure PeerMeasured is; both are absent where none is known.
	Peer         string   `json:"peer,omitempty"`
	PeerMeasured *float64 `json:"peerMeasured,omitempty"`
	// OverPeer is how many times the peer's figure ours is, where both were
	// measured here in turns: over the rounds.
	OverPeer *Spread `json:"overPeer,omitempty"`
	// Goal bounds Measured, or, where a note says so, Max; absent where the figure is there to compare with.
	Goal *float64 `json:"goal,omitempty"`
	// Met says whether this run reached the goal.
	Met *bool `json:"met,omitempty"`
	// Mean is estimated from the runs, where they are a sample of many that there
	// could be.
	Mean *claim.Estimate `json:"mean,omitempty"`
	// Raw is what was measured. Measured is that scaled by the first of Over,
	// the floors that it was measured beside, where there are any.
	Raw  *Spread `json:"raw,omitempty"`
	Over []Ratio `json:"over,omitempty"`
}

// New begins a report of what runs here and now.
func New(name string) *Report {
	return &Report{
		Name: name, Commit: version.String(), Machine: Machine(), Kernel: version.Release(),
		Started: time.Now().UTC().Truncate(time.Second), Rows: []Row{}, Notes: []string{},
	}
}

// Machine names the processor, as far as figures depend on it.
func Machine() string {
	model := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%s, %d CPUs", model, runtime.NumCPU())
}

// AtMost gives a row the goal that it must not exceed.
func (r Row) AtMost(goal float64) Row {
	met := r.Measured <= goal
	r.Goal, r.Met = &goal, &met
	return r
}

// WorstAtMost gives a row the goal that none of its runs must exceed.
func (r Row) WorstAtMost(goal float64) Row {
	met := r.Max <= goal
	r.Goal, r.Met = &goal, &met
	return r
}

// Beside puts a peer's figure next to a row.
func (r Row) Beside(peer string, measured float64) Row {
	r.Peer, r.PeerMeasured = peer, &measured
	return r
}

// InTurns puts next to a row a peer's figure that was measured here, too, in turns:
// ours and theirs are each round's.
func (r Row) InTurns(peer string, ours, theirs []float64) Row {
	ratio := RatioTo(peer, ours, theirs)
	r = r.Beside(peer, ratio.Raw.Median)
	if ratio.Raw.Min > 0 {
		r.OverPeer = &ratio.Times
	}
	return r
}

// Note adds a remark.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Missed lists the cases whose goal was not met.
func (r *Report) Missed() (missed []string) {
	for _, row := range r.Rows {
		if row.Met != nil && !*row.Met {
			missed = append(missed, row.Case)
		}
	}
	return missed
}

// WriteJSON writes the report to DIR/NAME.json and gives that path.
func (r *Report) WriteJSON(dir string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, r.Name+".json")
	// In one step: what was written before is kept until then.
	next := path + ".next"
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return path, err
	}
	return path, os.Rename(next, path)
}

// ReadJSON reads a report that WriteJSON, or another benchmark of the common
// form, has written.
func ReadJSON(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w: is it the figures of a benchmark?", path, err)
	}
	if r.Name == "" || len(r.Rows) == 0 {
		return nil, fmt.Errorf("%s: has no name or no rows: is it the figures of a benchmark?", path)
	}
	for _, row := range r.Rows {
		if (row.Goal == nil) != (row.Met == nil) {
			return nil, fmt.Errorf("%s: %q says goal or met without the other", path, row.Case)
		}
	}
	return r, nil
}

// WriteFiles writes pictures and the like into a folder, each under its name, and
// gives their paths.
func WriteFiles(dir string, files map[string][]byte) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// WriteTable writes the rows for people.
func (r *Report) WriteTable(out io.Writer) error {
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return len(row.Over) > 0 }) {
		return r.writePaired(out)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	turns := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.OverPeer != nil })
	head := "CASE\tMEASURED\tMIN\tMAX\tGOAL\tMET\tPEER\tUNIT"
	if turns {
		head += "\t/ PEER\tFROM\tTO"
	}
	means := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Mean != nil })
	if means {
		head += "\tMEAN (95 %)"
	}
	fmt.Fprintln(w, head)
	for _, row := range r.Rows {
		goal, met, peer := row.beside()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", row.Case, row.figure(row.Measured), row.figure(row.Min), row.figure(row.Max), goal, met, peer, row.Unit)
		if o := row.OverPeer; o != nil {
			fmt.Fprintf(w, "\t%s\t%s\t%s", times(o.Median), times(o.Min), times(o.Max))
		} else if turns {
			fmt.Fprint(w, "\t\t\t")
		}
		if m := row.Mean; m != nil {
			fmt.Fprintf(w, "\t%s (%s to %s)", figure(m.Mean), figure(m.Low), figure(m.High))
		} else if means {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// beside words what the figure is compared with.
func (r Row) beside() (goal, met, peer string) {
	if r.Goal != nil {
		goal, met = "<= "+r.figure(*r.Goal), "no"
		if *r.Met {
			met = "yes"
		}
	}
	if r.PeerMeasured != nil {
		peer = r.Peer + " " + figure(*r.PeerMeasured)
	}
	return goal, met, peer
}

// unitTimes is the unit of a row that is a ratio.
const unitTimes = "x"

// figure writes a number of the row's unit: of a ratio, thousandths count.
func (r Row) figure(f float64) string {
	if r.Unit == unitTimes {
		return strconv.FormatFloat(f, 'f', 3, 64)
	}
	return figure(f)
}

// times writes a ratio; a small one as what it is turned round.
func times(f float64) string {
	if f > 0 && f < 0.1 {
		return fmt.Sprintf("1/%.0f", 1/f)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}

// figure writes a number with as many digits as it is worth.
func figure(f float64) string {
	digits := 0
	if f != float64(int64(f)) && math.Abs(f) < 1000 {
		digits = 1
	}
	if f != 0 && math.Abs(f) < 1 {
		digits = 2
	}
	return strconv.FormatFloat(f, 'f', digits, 64)
}
