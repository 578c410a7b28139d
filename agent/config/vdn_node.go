package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// VDNNode is the configuration of fairlead vdn agent.
type VDNNode struct {
	// Name is the name of the node; empty: the host name.
	Name string
	// Controller is the URL of the VDN controller; TokenFile and CAFile are used to
	// connect.
	Controller, TokenFile, CAFile string
	// Uplinks have the form DEVICE=RATE.
	Uplinks []string
	Gateway bool
	// Means is "kernel" or "openvswitch", which requires Bridge.
	Means, Bridge string
	// BPFFS is the BPF file system for pins.
	BPFFS string
	// Data is the directory in which the last plan is cached.
	Data string
	// Socket is the unix socket for attaching pods.
	Socket string
	Monitoring
}

// ResolvedVDNNode is a valid VDNNode, parsed.
type ResolvedVDNNode struct {
	vdn.Node
	Client client.Config
	Bridge string
	// Pins is a directory on a BPF file system. Kept and Socket are files.
	Pins, Kept, Socket string
	Monitoring         Monitoring
}

// Enforcers of a node.
const (
	MeansKernel      = "kernel"
	MeansOpenVSwitch = "openvswitch"
)

// VDNPins is where a node's programs are pinned, relative to a BPF file system.
const VDNPins = "fairlead/vdn"

// Resolve validates and parses the configuration. It reports all errors together.
func (c VDNNode) Resolve() (*ResolvedVDNNode, error) {
	p := &parser{}
	r := &ResolvedVDNNode{
		Node:   vdn.Node{Name: c.Name, Gateway: c.Gateway, Means: c.Means, Uplinks: []vdn.Uplink{}},
		Client: client.Config{URL: c.Controller, TokenFile: c.TokenFile, CAFile: c.CAFile},
		Bridge: c.Bridge, Pins: filepath.Join(c.BPFFS, VDNPins), Kept: filepath.Join(c.Data, "plan.json"), Socket: c.Socket,
		Monitoring: c.Monitoring,
	}
	if r.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			p.refuse("name", "%v: write one", err)
		}
		r.Name = strings.ToLower(name)
	}
	r.uplinks(p, c.Uplinks)
	switch {
	case !slices.Contains([]string{MeansKernel, MeansOpenVSwitch}, c.Means):
		p.refuse("enforcer", "%q is not an enforcer: use %s or %s", c.Means, MeansKernel, MeansOpenVSwitch)
	case c.Means == MeansOpenVSwitch && c.Bridge == "":
		p.refuse("bridge", "required for enforcer %s: name an Open vSwitch bridge that is used for nothing else", c.Means)
	case c.Means == MeansOpenVSwitch && c.Gateway:
		p.refuse("gateway", "enforcer %s does not work on gateways: use %s", c.Means, MeansKernel)
	case c.Means == MeansKernel && c.Bridge != "":
		p.refuse("bridge", "not supported by enforcer %s: remove it, or use enforcer %s", c.Means, MeansOpenVSwitch)
	}
	return r, p.err()
}

func (r *ResolvedVDNNode) uplinks(p *parser, all []string) {
	for _, text := range all {
		device, rate, ok := strings.Cut(text, "=")
		parsed, err := vdn.ParseRate(rate)
		if !ok || device == "" || err != nil || parsed == 0 {
			p.refuse("uplink", "%q is not an uplink: set a device and its rate, such as eth1=1G", text)
			continue
		}
		if slices.ContainsFunc(r.Uplinks, func(u vdn.Uplink) bool { return u.Device == device }) {
			p.refuse("uplink", "%s is listed twice", device)
			continue
		}
		r.Uplinks = append(r.Uplinks, vdn.Uplink{Device: device, Rate: parsed})
	}
	if len(all) == 0 {
		p.refuse("uplink", "required: list the devices whose rate networks share, such as eth1=1G")
	}
}
