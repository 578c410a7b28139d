package agent

import (
	"context"
	"log/slog"
	"strings"

	"github.com/fairlead/fairlead/agent/otlp"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/reconciler"
)

// openTraces makes the loop send a trace of each change to the collector, if there is one.
func (a *agent) openTraces(loop *reconciler.Config) (err error) {
	if a.config.OTLPEndpoint == "" {
		return nil
	}
	a.traces, err = otlp.New(a.config.OTLPEndpoint, []otlp.Attribute{
		{Key: "service.name", Value: "fairlead-agent"}, {Key: "service.version", Value: version.String()}, {Key: "host.name", Value: a.config.Node},
	}, slog.Default())
	if err == nil {
		loop.OnChange = func(c reconciler.Change) { a.traces.Add(traceOf(c)) }
	}
	return err
}

// sendTraces sends what the loop has changed until ctx ends.
func (a *agent) sendTraces(ctx context.Context) {
	if a.traces != nil {
		a.traces.Run(ctx)
	}
}

// traceOf returns the trace of a change. It begins when the source delivered the change.
func traceOf(c reconciler.Change) otlp.Span {
	trace := otlp.Span{Name: "change", Began: c.Began, Ended: c.Ended}
	if !c.Learned.IsZero() {
		trace.Began = c.Learned
		trace.Children = append(trace.Children, otlp.Span{Name: "wait", Began: c.Learned, Ended: c.Began})
	}
	if c.Omitted > 0 {
		trace.Attributes = append(trace.Attributes, otlp.Attribute{Key: "fairlead.steps.omitted", Value: c.Omitted})
	}
	for _, s := range c.Steps {
		if s.Err != nil && trace.Err == nil {
			trace.Err = s.Err
		}
		trace.Children = append(trace.Children, otlp.Span{Name: string(s.Kind), Began: s.Began, Ended: s.Ended, Err: s.Err, Attributes: attributesOf(s)})
	}
	return trace
}

// mostPrefixes limits the prefixes that a span names.
const mostPrefixes = 20

func attributesOf(s reconciler.Step) (all []otlp.Attribute) {
	add := func(key string, value any) { all = append(all, otlp.Attribute{Key: "fairlead." + key, Value: value}) }
	if s.Frontend.VIP.IsValid() {
		add("frontend", s.Frontend)
	}
	if s.Service.Name != "" {
		add("service", s.Service)
	}
	if len(s.Routes) > 0 {
		var prefixes []string
		for _, r := range s.Routes[:min(len(s.Routes), mostPrefixes)] {
			prefixes = append(prefixes, r.Prefix.String())
		}
		add("routes", len(s.Routes))
		add("prefixes", strings.Join(prefixes, ","))
	}
	return all
}
