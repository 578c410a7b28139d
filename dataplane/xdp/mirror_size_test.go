package xdp

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/bpfload"
)

// TestMirrorOfAnotherRelease takes over map members that is larger than this release makes
// it: everything stays in place, and the map as large as it is.
func TestMirrorOfAnotherRelease(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	f := frontend(service.Tunnel, vips[false], service.TCP, "172.16.6.1:1", "172.16.6.2:1")
	upsert(t, d, f)
	members := d.pins.Path(bpf.BalancerMapMembers)
	made, err := bpfload.PinnedSize(members)
	must(t, err)
	programmed := state(t, d)

	spec, err := d.config.program().Spec()
	must(t, err)
	larger := spec.Maps[bpf.BalancerMapMembers]
	larger.MaxEntries = made + 1000
	must(t, d.Close())
	must(t, os.Remove(members))
	larger.Pinning = ebpf.PinNone
	m, err := ebpf.NewMap(larger)
	must(t, err)
	must(t, m.Pin(members))
	must(t, m.Close())

	d = n.open(t, config())
	if now, err := bpfload.PinnedSize(members); err != nil || now != made+1000 {
		t.Errorf("map members has %d entries, %v; want %d", now, err, made+1000)
	}
	if now := state(t, d); now != programmed {
		t.Errorf("holds\n %s\nprogrammed\n %s", now, programmed)
	}
	if names, err := os.ReadDir(d.config.PinDir); err != nil || len(names) != 1 {
		t.Errorf("pins in %v, %v: written again", names, err)
	}
}
