package xdp

import (
	"fmt"
	"os"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// TestWithoutOptional forwards packets on kernels without optional features.
func TestWithoutOptional(t *testing.T) {
	refusals.Optional(t, features.Balancer, refusals.Tests{
		Few: "^(TestTunnel|TestDSRNAT|TestDegraded)$",
		All: "^(TestConformance|TestTunnel|TestDSRNAT|TestFullNAT|TestUntouched|TestDegraded)$",
		// The others run the programs on frames in the kernel.
		Instead: map[string]string{features.TestRun: "^(TestFullNATWithRealSockets|TestRestartLosesNothing|TestDegraded)$"},
	})
}

// TestDegraded takes over maps of other sizes, and checks what is reported as missing, and
// that nothing else is.
func TestDegraded(t *testing.T) {
	n := newNet(t)
	small := config()
	small.MaxBackends = 100
	must(t, n.open(t, small).Close())
	d := n.open(t, config())
	missing := map[string]bool{}
	for _, one := range d.Degraded() {
		missing[one.Feature] = true
	}
	for _, f := range features.Table {
		if want := refusals.Without(f.Name) && !f.Silent; missing[f.Name] != want {
			t.Errorf("%s is reported as missing: %v, want %v", f.Name, missing[f.Name], want)
		}
	}
}

// TestWithoutEssential: an agent fails to start on kernels without essential features,
// while its predecessor's program keeps forwarding.
func TestWithoutEssential(t *testing.T) {
	if refusals.Attempt(func(at string) error {
		return refusals.InNamespace(at, func() error {
			if d, err := Open(config()); err == nil { // existing pins need not be created
				d.Close()
			}
			fresh := config()
			fresh.Interfaces = []string{"eth1"}
			fresh.PinDir += fmt.Sprint("-", os.Getpid())
			defer os.RemoveAll(fresh.PinDir)
			d, err := Open(fresh)
			if err == nil {
				err = d.Upsert(frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
			}
			if d != nil {
				d.Detach()
			}
			return err
		})
	}) {
		return
	}
	n := newNet(t)
	d := n.open(t, config())
	must(t, d.Upsert(frontend(service.Tunnel, vips[false], service.TCP, servers[false])))
	before := n.attachedProgram(t, "eth0")
	refusals.Essential(t, features.Balancer, n.balancer.Path(), func(t *testing.T) {
		if now := n.attachedProgram(t, "eth0"); now == 0 {
			t.Errorf("program %d is no longer attached", before)
		}
		if programmed, err := d.List(); err != nil || len(programmed) != 1 {
			t.Errorf("it holds %v, %v", programmed, err)
		}
	})
}
