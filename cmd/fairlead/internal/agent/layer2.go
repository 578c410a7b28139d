package agent

import (
	"context"
	"log/slog"
	"slices"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/l2"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/source"
)

// openLayer2 makes a loop also advertise by ARP and neighbor discovery, if configured.
func (a *agent) openLayer2(loop *reconciler.Config) (err error) {
	r := a.config
	asked := r.Agent.Layer2
	if len(asked.Interfaces) == 0 {
		return nil
	}
	a.layer2, err = l2.New(l2.Config{
		Interfaces: asked.Interfaces, Self: r.Layer2.Self, Members: r.Layer2.Members, Password: r.Layer2.Password,
		Events: a.events.Record, Log: slog.Default(),
	})
	if err != nil {
		return err
	}
	announceToo(loop, route.ModeLayer2, a.layer2)
	if len(r.Layer2.Members) == 0 && r.Balancers != "" {
		loop.Source = memberSource{loop.Source, a.layer2}
	}
	return nil
}

// announceToo adds another announcer to a loop.
func announceToo(loop *reconciler.Config, mode route.Mode, by advertise.Announcer) {
	by = advertise.Only(mode, by)
	if loop.Announcer != nil {
		by = advertise.Together{loop.Announcer, by}
	}
	loop.Announcer = by
}

// memberSource informs layer 2 of the load balancers.
type memberSource struct {
	source.Source
	layer2 *l2.Announcer
}

func (m memberSource) Run(ctx context.Context, publish func(source.Snapshot)) error {
	return m.Source.Run(ctx, func(s source.Snapshot) {
		if err := m.layer2.SetMembers(s.Balancers); err != nil {
			s.Problems = append(slices.Clone(s.Problems), problem.Failed("layer 2", err.Error()))
		}
		publish(s)
	})
}
