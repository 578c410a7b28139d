// Package bench defines the common report format of all benchmarks: rows of figures with
// their goals and reference figures of peers, printed as a table or as JSON. The
// experiments are in its subfolders.
package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/sim/verdict"
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
	// Charts are drawn on the page.
	Charts []design.Chart `json:"-"`
}

// Row is one figure. Measured is the median if there are several Runs.
type Row struct {
	Case     string  `json:"case"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Min      float64 `json:"min"`
	Max      float64 `json:"max"`
	Runs     int     `json:"runs"`
	// Samples contains the runs behind Measured, in order, if they are still known.
	Samples []float64 `json:"samples,omitempty"`
	// Peer names the source of PeerMeasured. Both are absent if no peer's figure is
	// known.
	Peer         string   `json:"peer,omitempty"`
	PeerMeasured *float64 `json:"peerMeasured,omitempty"`
	// OverPeer is the ratio of our figure to the peer's per round, if both were measured
	// here in alternation.
	OverPeer *Spread `json:"overPeer,omitempty"`
	// Goal is the upper bound for Measured, or for Max if a note says so. It is absent if
	// the figure is only there for comparison.
	Goal *float64 `json:"goal,omitempty"`
	// LowerBound reports that Goal is the lower bound for Measured.
	LowerBound bool `json:"lowerBound,omitempty"`
	// Met reports whether this run reached the goal.
	Met *bool `json:"met,omitempty"`
	// Mean is the estimated mean, if the runs are a sample of a larger population.
	Mean *verdict.Estimate `json:"mean,omitempty"`
	// Raw is what was measured, if Measured is a ratio. Over has one ratio for each floor
	// measured with the case.
	Raw  *Spread `json:"raw,omitempty"`
	Over []Ratio `json:"over,omitempty"`
}

// New starts a report about this machine, at the current time.
func New(name string) *Report {
	return &Report{
		Name: name, Commit: version.String(), Machine: Machine(), Kernel: version.Release(),
		Started: time.Now().UTC().Truncate(time.Second), Rows: []Row{}, Notes: []string{},
	}
}

// Machine returns the CPU model and the number of CPUs.
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

// AtMost sets an upper bound for Measured as the goal.
func (r Row) AtMost(goal float64) Row {
	met := r.Measured <= goal
	r.Goal, r.Met = &goal, &met
	return r
}

// AtLeast sets a lower bound for Measured as the goal.
func (r Row) AtLeast(goal float64) Row {
	met := r.Measured >= goal
	r.Goal, r.Met, r.LowerBound = &goal, &met, true
	return r
}

// WorstAtMost sets an upper bound for all runs, including the worst, as the goal.
func (r Row) WorstAtMost(goal float64) Row {
	met := r.Max <= goal
	r.Goal, r.Met = &goal, &met
	return r
}

// ComparedWith adds a peer's figure to a row.
func (r Row) ComparedWith(peer string, measured float64) Row {
	r.Peer, r.PeerMeasured = peer, &measured
	return r
}

// Alternating adds a peer's figure that was measured here in alternation with ours. ours and
// theirs contain one figure per round.
func (r Row) Alternating(peer string, ours, theirs []float64) Row {
	ratio := RatioTo(peer, ours, theirs)
	r = r.ComparedWith(peer, ratio.Raw.Median)
	if ratio.Raw.Min > 0 {
		r.OverPeer = &ratio.Times
	}
	return r
}

// Note appends a note to the report.
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

// WriteJSON writes the report to DIR/NAME.json and returns that path.
func (r *Report) WriteJSON(dir string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, r.Name+".json")
	// Rename at the end, so that the previous report survives until the new one is
	// complete.
	next := path + ".next"
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return path, err
	}
	return path, os.Rename(next, path)
}

// ReadJSON reads a report written by WriteJSON, or by another benchmark that uses the
// common format.
func ReadJSON(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w: is it a benchmark report?", path, err)
	}
	if r.Name == "" || len(r.Rows) == 0 {
		return nil, fmt.Errorf("%s: has no name or no rows: is it a benchmark report?", path)
	}
	for _, row := range r.Rows {
		if (row.Goal == nil) != (row.Met == nil) {
			return nil, fmt.Errorf("%s: %q has only one of goal and met", path, row.Case)
		}
	}
	return r, nil
}

// WriteFiles writes files, such as pictures, into a folder under their names, and returns
// their paths.
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
