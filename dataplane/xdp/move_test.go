package xdp

import (
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/lab/testkit"
)

// removable is an in-memory data plane that can be removed.
type removable struct{ *fake.DataPlane }

func (removable) Detach() error { return nil }

// ringless stores no ring sizes, like IPVS.
type ringless struct{ removable }

func (r ringless) List() ([]desired.Frontend, error) {
	list, err := r.removable.List()
	for i := range list {
		list[i].RingSize = 0
	}
	return list, err
}

// A program that another agent left pinned is opened, its frontends move to the next data
// plane, and nothing of it remains. What IPVS lists, without a ring size, moves the other
// way.
func TestMoves(t *testing.T) {
	n, next, back := newNet(t), removable{fake.New()}, ringless{removable{fake.New()}}
	f := frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.0.11:80", "172.16.0.12:80")
	d := n.open(t, config())
	must(t, d.Upsert(f))
	must(t, d.Close())
	old := n.open(t, config())
	testkit.Do(t, n.balancer, func() error { return dataplane.Move(old, next) })
	n.current = nil
	if pins, err := filepath.Glob(filepath.Join(config().PinDir, "*")); err != nil || len(pins) > 0 {
		t.Errorf("left %v (%v)", pins, err)
	}
	programmed, err := next.List()
	must(t, err)
	if len(programmed) != 1 || len(programmed[0].Backends) != 2 || programmed[0].Key != f.Key {
		t.Fatalf("the next holds %+v", programmed)
	}
	f.Survival = service.FlowTable
	must(t, back.Upsert(f))
	d = n.open(t, config())
	must(t, dataplane.Move(back, d))
	programmed, err = d.List()
	must(t, err)
	f.RingSize = service.DefaultRingSize
	if len(programmed) != 1 || !programmed[0].Same(f) {
		t.Errorf("XDP holds %+v, want %+v", programmed, f)
	}
}
