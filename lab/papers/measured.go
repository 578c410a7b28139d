package papers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/atomicfile"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/sim/lvs"
)

// Measured is what one repetition of an experiment has measured.
type Measured struct {
	Experiment string `json:"experiment"`
	Repetition int    `json:"repetition"`
	// Version has several ones, separated by ", ", if figures of the simulator were added.
	Version string    `json:"version"`
	Machine string    `json:"machine"`
	Kernel  string    `json:"kernel"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Failure is the error of an attempt before this one.
	Failure string `json:"failure,omitempty"`
	// Samples contains the runs of each case, in order: the same index in two cases is the
	// same round.
	Samples map[string][]float64 `json:"samples,omitempty"`
	// Figures contains the figures of the simulator.
	Figures []lvs.Outcome `json:"figures,omitempty"`
	Notes   []string      `json:"notes,omitempty"`
}

// mostSamples limits the samples of one case.
const mostSamples = 2000

// add adds the rows of a benchmark.
func (m *Measured) add(r *bench.Report) {
	if m.Samples == nil {
		m.Samples = map[string][]float64{}
	}
	for _, row := range r.Rows {
		samples := row.Samples
		if len(samples) == 0 {
			samples = []float64{row.Measured}
		}
		m.Samples[row.Case] = samples[:min(len(samples), mostSamples)]
	}
	m.Notes = append(m.Notes, r.Notes...)
}

// made records by which version some of m is made.
func (m *Measured) made(version string) {
	if all := strings.Split(m.Version, ", "); m.Version == "" {
		m.Version = version
	} else if !slices.Contains(all, version) {
		m.Version += ", " + version
	}
}

// lacking returns the selected figures of the simulator that m does not have.
func (m *Measured) lacking(s Selection) (all []lvs.Figure) {
	for _, f := range lvs.Figures() {
		if s.has(simulationID+"/"+f.Name) && m.figure(f.Name) == nil {
			all = append(all, f)
		}
	}
	return all
}

// path is the file of a repetition.
func path(dir string, l Length, experiment string, repetition int) string {
	return filepath.Join(dir, "runs", string(l), fmt.Sprintf("%s-%d.json", experiment, repetition))
}

// load reads an earlier repetition, or returns nil.
func load(dir string, l Length, experiment string, repetition int) *Measured {
	text, err := os.ReadFile(path(dir, l, experiment, repetition))
	m := &Measured{}
	if err != nil || json.Unmarshal(text, m) != nil {
		return nil
	}
	return m
}

// save writes a repetition.
func (m *Measured) save(dir string, l Length) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	to := path(dir, l, m.Experiment, m.Repetition)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(to, 0o644, bytes.NewReader(text))
}

// samples returns the quantity that is measured directly by a case.
func samples(name string) func(*Measured) []float64 {
	return func(m *Measured) []float64 { return m.Samples[name] }
}

// ratio returns a case divided by another one, round by round.
func ratio(of, to string) func(*Measured) []float64 {
	return func(m *Measured) []float64 { return divided(m.Samples[of], m.Samples[to]) }
}

func divided(a, b []float64) (all []float64) {
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]/b[i])
	}
	return all
}

// together returns the geometric mean of several ratios in each round.
func together(ratios ...func(*Measured) []float64) func(*Measured) []float64 {
	return func(m *Measured) (all []float64) {
		for i, of := range ratios {
			got := of(m)
			if i == 0 {
				all = slices.Repeat([]float64{1}, len(got))
			}
			all = all[:min(len(all), len(got))]
			for round := range all {
				all[round] *= math.Pow(got[round], 1/float64(len(ratios)))
			}
		}
		return all
	}
}

// pooled returns the samples of several quantities.
func pooled(quantities ...func(*Measured) []float64) func(*Measured) []float64 {
	return func(m *Measured) (all []float64) {
		for _, of := range quantities {
			all = append(all, of(m)...)
		}
		return all
	}
}

// difference returns a case less another one, round by round.
func difference(of, less string) func(*Measured) []float64 {
	return func(m *Measured) (all []float64) {
		a, b := m.Samples[of], m.Samples[less]
		for i := range min(len(a), len(b)) {
			all = append(all, a[i]-b[i])
		}
		return all
	}
}

// within returns 1 for each sample up to a bound, and 0 for the others.
func within(name string, most float64) func(*Measured) []float64 {
	return func(m *Measured) (all []float64) {
		for _, x := range m.Samples[name] {
			is := 0.0
			if x <= most {
				is = 1
			}
			all = append(all, is)
		}
		return all
	}
}

// chunks is the number of quantiles that many noisy samples become.
const chunks = 10

// lows returns the lowest tenths of consecutive parts of many samples, such as latencies:
// other work on the machine only makes samples larger.
func lows(all []float64) []float64 { return ranked(all, 0.1) }

// highs returns the highest tenths, of samples such as bandwidths.
func highs(all []float64) []float64 { return ranked(all, 0.9) }

func ranked(all []float64, rank float64) (some []float64) {
	if len(all) < 5*chunks {
		return all
	}
	for i := range chunks {
		part := slices.Sorted(slices.Values(all[i*len(all)/chunks : (i+1)*len(all)/chunks]))
		some = append(some, part[int(rank*float64(len(part)))])
	}
	return some
}

// ratioOfLows is ratio for many noisy samples.
func ratioOfLows(of, to string) func(*Measured) []float64 {
	return func(m *Measured) []float64 { return divided(lows(m.Samples[of]), lows(m.Samples[to])) }
}

// scaled returns a quantity multiplied by a factor.
func scaled(of func(*Measured) []float64, by float64) func(*Measured) []float64 {
	return func(m *Measured) (all []float64) {
		for _, x := range of(m) {
			all = append(all, x*by)
		}
		return all
	}
}

// ratioOfHighs is ratio for many noisy samples of which larger ones are better.
func ratioOfHighs(of, to string) func(*Measured) []float64 {
	return func(m *Measured) []float64 { return divided(highs(m.Samples[of]), highs(m.Samples[to])) }
}
