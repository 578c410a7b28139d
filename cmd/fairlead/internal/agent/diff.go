package agent

import (
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/diff"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/reconciler"
)

// answerDiff compares manifests with what is programmed, and changes nothing.
func (a *agent) answerDiff(s *stream, r *http.Request) error {
	if a.folder == nil {
		return errors.New("this agent reads its Services from a cluster, not from manifests")
	}
	if a.plane == nil {
		return errors.New("this agent does not have the role balancer: it programs no frontends")
	}
	var request api.DiffRequest
	if err := json.NewDecoder(limit.NewReader(r.Body, "request", limit.Answer)).Decode(&request); err != nil {
		return err
	}
	snapshot, err := a.folder.Preview(request.Files, request.Whole)
	if err != nil {
		return err
	}
	p, err := a.loop.Preview(r.Context(), snapshot)
	if err != nil {
		return err
	}
	if !p.View.Loaded || p.View.Held == nil {
		return errors.New("the agent has not completed its first pass yet: try again in a moment")
	}
	report, err := diff.Of(a.diffInput(p, snapshot.Problems, request.Flows))
	if err != nil {
		return err
	}
	return json.NewEncoder(s).Encode(report)
}

func (a *agent) diffInput(p *reconciler.Preview, problems []problem.Problem, others []api.Flow) diff.Input {
	v := p.View
	in := diff.Input{
		Programmed: maps.Clone(v.Held), Before: v.Plan, After: p.Plan, Advertises: p.Advertises, Flows: a.everyFlow(others),
		Problems: slices.DeleteFunc(slices.Clone(problems), func(p problem.Problem) bool { return slices.Contains(v.Problems, p) }),
	}
	maps.DeleteFunc(in.Programmed, func(k service.Key, _ desired.Frontend) bool { _, leaves := v.Leaving[k]; return leaves })
	for r := range v.Announced {
		in.Advertised = append(in.Advertised, r)
	}
	if previewer, ok := a.plane.(dataplane.Previewer); ok {
		in.Preview = previewer.Preview
	}
	if c, ok := a.plane.(dataplane.Canonical); ok {
		in.Canonical = c.Canonical
	}
	return in
}

// everyFlow returns the flows that this agent tracks, and those of others.
func (a *agent) everyFlow(others []api.Flow) iter.Seq2[dataplane.Flow, error] {
	return func(yield func(dataplane.Flow, error) bool) {
		for f, err := range a.eachFlow(dataplane.FlowQuery{}) {
			if !yield(f.Flow, err) {
				return
			}
		}
		for _, f := range others {
			if !yield(f.Flow, nil) {
				return
			}
		}
	}
}
