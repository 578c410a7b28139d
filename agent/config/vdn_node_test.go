package config

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/vdn"
)

func TestVDNNode(t *testing.T) {
	good := VDNNode{Name: "n1", Controller: "http://127.0.0.1:7473", Uplinks: []string{"eth1=1G", "eth2=400M"}, Means: MeansKernel, BPFFS: "/sys/fs/bpf", Data: "/var/lib/x"}
	r, err := good.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if want := (vdn.Uplink{Device: "eth2", Rate: 400_000_000}); r.Uplinks[1] != want || r.Pins != "/sys/fs/bpf/fairlead/vdn" || r.Kept != "/var/lib/x/plan.json" {
		t.Errorf("%+v", r)
	}
	for want, change := range map[string]func(*VDNNode){
		"uplink: required":                          func(c *VDNNode) { c.Uplinks = nil },
		`"eth1" is not an uplink`:                   func(c *VDNNode) { c.Uplinks = []string{"eth1"} },
		`"eth1=fast" is not an uplink`:              func(c *VDNNode) { c.Uplinks = []string{"eth1=fast"} },
		`"eth1=0" is not an uplink`:                 func(c *VDNNode) { c.Uplinks = []string{"eth1=0"} },
		"eth1 is listed twice":                      func(c *VDNNode) { c.Uplinks = []string{"eth1=1G", "eth1=2G"} },
		`"magic" is not an enforcer`:                func(c *VDNNode) { c.Means = "magic" },
		"bridge: required for enforcer openvswitch": func(c *VDNNode) { c.Means = MeansOpenVSwitch },
		"does not work on gateways":                 func(c *VDNNode) { c.Means, c.Bridge, c.Gateway = MeansOpenVSwitch, "br0", true },
		"bridge: not supported by enforcer kernel":  func(c *VDNNode) { c.Bridge = "br0" },
	} {
		c := good
		change(&c)
		if _, err := c.Resolve(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
