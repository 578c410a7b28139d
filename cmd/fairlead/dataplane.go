package main

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/ipvs"
	"github.com/fairlead/fairlead/dataplane/xdp"
)

// plane is what every data plane of an agent can do.
type plane interface {
	dataplane.DataPlane
	EachFlow(dataplane.FlowQuery) iter.Seq2[dataplane.Flow, error]
}

// openPlane opens the data plane that is asked for; with auto XDP's, or IPVS
// where this kernel cannot run that.
func (a *agent) openPlane() error {
	why := ""
	if a.config.DataPlane != "ipvs" {
		err := a.openXDP()
		switch {
		case err == nil:
			return nil
		case a.config.DataPlane == "xdp", !xdp.Impossible(err):
			return err
		}
		why = fmt.Sprintf("IPVS forwards, since XDP does not work here: %v", err)
	}
	if err := a.openIPVS(why); err != nil {
		if why != "" {
			err = errors.Join(errors.New(why), err)
		}
		return err
	}
	return nil
}

func (a *agent) openXDP() error {
	r := a.config
	d, err := xdp.Open(xdp.Config{
		Interfaces: r.Interfaces, Mode: xdp.Mode(r.Mode), PinDir: a.pins(),
		SourceV4: r.Source4, SourceV6: r.Source6,
		MaxFrontends: r.MaxFrontends, MaxBackends: r.MaxBackends, MaxFlows: r.MaxFlows, GUEPort: r.GUEPort,
	})
	if err != nil {
		return err
	}
	a.plane, a.xdp = d, d
	slog.Info("data plane attached", "interfaces", d.Describe().Attached)
	return nil
}

// openIPVS opens IPVS's in this network namespace, where no XDP program takes the
// packets before it.
func (a *agent) openIPVS(why string) error {
	left, err := filepath.Glob(filepath.Join(a.pins(), "*"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("--dataplane ipvs: an XDP program that is pinned in %s takes the packets first: "+
			"remove that folder, which ends its forwarding, and start again", a.pins())
	}
	if err != nil {
		return err
	}
	d, err := ipvs.Open(ipvs.Config{GUEPort: a.config.GUEPort, Instead: why})
	if err != nil {
		return err
	}
	a.plane = d
	slog.Info("data plane opened", "kind", "ipvs", "why", why)
	return nil
}

// pins is the folder of XDP's pins.
func (a *agent) pins() string { return filepath.Join(a.config.BPFFS, "fairlead", "balancer") }
