package lvs

import "github.com/fairlead/fairlead/lab/sim/verdict"

// Report contains the results of figures. Its JSON field names are stable.
type Report struct {
	Clock   Clock     `json:"clock"`
	Seeds   int       `json:"seeds"`
	Figures []Outcome `json:"figures"`
	// Interrupted is true if not all runs completed.
	Interrupted bool `json:"interrupted"`
}

// Outcome contains the results of a figure.
type Outcome struct {
	Figure   string            `json:"figure"`
	Title    string            `json:"title"`
	X        string            `json:"x"`
	Y        string            `json:"y"`
	Verdict  verdict.Verdict   `json:"verdict"`
	Seeds    int               `json:"seeds"` // number of seeds with all runs
	Findings []verdict.Finding `json:"findings"`
	Curves   []verdict.Curve   `json:"curves"`
	Remarks  []string          `json:"remarks,omitempty"`
	// Conditions are the parameters of the runs.
	Conditions []string `json:"conditions,omitempty"`
}

func report(figures []Figure, o Options, results map[job]*Result) *Report {
	r := &Report{Clock: o.Clock, Seeds: o.Seeds}
	for i := range figures {
		f := &figures[i]
		var seeds []Curves
		for seed := range uint32(o.Seeds) {
			if c := f.draw(results, uint32(o.Skip)+seed+1); c != nil {
				seeds = append(seeds, c)
			}
		}
		r.Interrupted = r.Interrupted || len(seeds) < o.Seeds
		r.Figures = append(r.Figures, f.outcome(seeds))
	}
	return r
}

// draw returns the curves of a seed, or nil if a run is missing.
func (f *Figure) draw(results map[job]*Result, seed uint32) (curves Curves) {
	for _, s := range f.setups() {
		if results[s.job(seed)] == nil {
			return nil
		}
	}
	for _, c := range f.Series {
		curves = append(curves, c.draw(func(s Setup) *Result { return results[s.job(seed)] }))
	}
	return curves
}

func (f *Figure) outcome(seeds []Curves) Outcome {
	o := Outcome{Figure: f.Name, Title: f.Title, X: f.X, Y: f.Y, Verdict: verdict.Unsettled, Seeds: len(seeds), Remarks: f.Remarks, Conditions: f.conditions(),
		Findings: []verdict.Finding{}, Curves: []verdict.Curve{}}
	if len(seeds) == 0 {
		return o
	}
	for _, c := range f.Claims {
		o.Findings = append(o.Findings, c.Judge(seeds))
	}
	o.Verdict = verdict.Sum(o.Findings)
	for i, c := range f.Series {
		curve := verdict.Curve{Name: c.Name, Aside: c.Aside}
		for k, p := range seeds[0][i] {
			ys := make([]float64, len(seeds))
			for s := range seeds {
				ys[s] = seeds[s][i][k].Y
			}
			curve.Points = append(curve.Points, verdict.Point{X: p.X, Estimate: verdict.Mean(ys)})
		}
		o.Curves = append(o.Curves, curve)
	}
	return o
}
