package agent

import (
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/ipvs"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/version"
)

// plane is the interface of every data plane of an agent.
type plane interface {
	dataplane.DataPlane
	EachFlow(dataplane.FlowQuery) iter.Seq2[dataplane.Flow, error]
}

// openPlane opens the configured data plane. With auto, that is XDP, or IPVS if this
// kernel cannot run XDP.
func (a *agent) openPlane() error {
	var refusal error // why XDP is not possible
	why := ""
	if a.config.DataPlane != "ipvs" {
		d, err := a.newXDP()
		switch {
		case err == nil:
			return a.useXDP(d)
		case a.config.DataPlane == "xdp", !xdp.Impossible(err):
			return err
		}
		refusal = err
		why = fmt.Sprintf("IPVS forwards, since XDP does not work here: %v", err)
	}
	if err := a.openIPVS(why); err != nil {
		if refusal != nil {
			err = fmt.Errorf("no data plane works here: %w; nor does IPVS in its place: %w", refusal, err)
		}
		return err
	}
	if refusal != nil {
		a.noXDP = []features.Degraded{{
			Feature: "xdp-programs", Component: features.Balancer, Reason: features.Reason(refusal), Message: refusal.Error(),
			Lost: "IPVS is used instead of XDP: it is slower, and lacks features (docs/data-planes.md)",
		}}
	}
	return nil
}

// useXDP makes XDP take over from IPVS, if that is present.
func (a *agent) useXDP(d *xdp.DataPlane) error {
	a.plane, a.xdp = d, d
	if names := d.Replaced(); len(names) > 0 {
		a.events.Record(event.Event{Type: event.ProgramsReplaced, Object: a.events.Self(), Field: strings.Join(names, ","), Cause: "taken over from an earlier process, for " + version.String()})
	}
	slog.Info("data plane attached", "interfaces", d.Describe().Attached)
	there, err := ipvs.Present()
	if err != nil || !there {
		return err
	}
	old, err := ipvs.Open(ipvs.Config{GUEPort: a.config.GUEPort})
	if err != nil {
		return err
	}
	return moved(old, d)
}

func (a *agent) newXDP() (*xdp.DataPlane, error) {
	r := a.config
	return xdp.Open(xdp.Config{
		Interfaces: r.Interfaces, Mode: xdp.Mode(r.Mode), PinDir: a.pins(),
		SourceV4: r.Source4, SourceV6: r.Source6,
		MaxFrontends: r.MaxFrontends, MaxBackends: r.MaxBackends, MaxFlows: r.MaxFlows, GUEPort: r.GUEPort,
		SYNThreshold: float64(r.SYNThreshold),
		Auth:         r.NodeAuth,
	})
}

// openIPVS opens IPVS in this network namespace. If XDP is present, it must take over
// from it: the XDP program receives the packets first.
func (a *agent) openIPVS(why string) error {
	d, err := ipvs.Open(ipvs.Config{GUEPort: a.config.GUEPort, Instead: why})
	if err != nil {
		return err
	}
	a.plane = d
	slog.Info("data plane opened", "kind", "ipvs", "reason", why)
	left, err := filepath.Glob(filepath.Join(a.pins(), "*"))
	if err != nil || len(left) == 0 {
		return err
	}
	old, err := a.newXDP()
	if err != nil {
		return fmt.Errorf("--dataplane ipvs: an XDP program that is pinned in %s takes the packets first, and cannot be taken over (%w): "+
			"remove that folder, which ends its forwarding, and start again", a.pins(), err)
	}
	return moved(old, d)
}

// moved moves everything to another data plane and logs the consequences.
func moved(from, to dataplane.Removable) error {
	was := from.Describe().Kind
	if err := dataplane.Move(from, to); err != nil {
		return err
	}
	slog.Warn("moved to another data plane: open connections survive if it selects the same backend, others are reset",
		"from", was, "to", to.Describe().Kind)
	return nil
}

// pins returns the directory of the XDP pins.
func (a *agent) pins() string { return filepath.Join(a.config.BPFFS, "fairlead", "balancer") }
