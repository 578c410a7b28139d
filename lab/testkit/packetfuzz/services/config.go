package services

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/proxied"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// config is what the agent has written for the programs.
type config struct {
	proxied.Frontends
	nodes map[wire.Addr]bool

	masks     map[uint32][2]wire.Addr // by device and family
	bridges   map[uint32]uint32
	macs      map[uint32][6]byte
	mtus      map[uint32]int
	maskFirst uint32
	maskCount uint32
}

// maskOf returns the source address for endpoints behind a device.
func (c *config) maskOf(ifindex uint32, v6 bool) wire.Addr {
	if a := c.masks[ifindex][family(v6)]; !a.Zero() {
		return a
	}
	return c.masks[0][family(v6)]
}

// reader reads the agent's maps by the names of C's fields.
type reader struct {
	maps map[string]*ebpf.Map
	mask packetfuzz.Layout
}

func newReader(o *packetfuzz.Object, live map[string]*ebpf.Map) (r *reader, err error) {
	r = &reader{maps: live}
	r.mask, err = packetfuzz.LayoutOf(o.Spec.Types, "packet_mask")
	return r, err
}

// devices reads the agent's data about the node's devices.
func (r *reader) devices(c *config) error {
	c.masks, c.bridges, c.macs = map[uint32][2]wire.Addr{}, map[uint32]uint32{}, map[uint32][6]byte{}
	var k uint32
	var v []byte
	for it := r.maps["packet_masks"].Iterate(); it.Next(&k, &v); {
		c.masks[k] = [2]wire.Addr{wire.Addr(v[r.mask.At("v4"):][:16]), wire.Addr(v[r.mask.At("v6"):][:16])}
	}
	for it := r.maps["packet_bridges"].Iterate(); it.Next(&k, &v); {
		c.bridges[k] = binary.NativeEndian.Uint32(v)
	}
	for it := r.maps["packet_macs"].Iterate(); it.Next(&k, &v); {
		c.macs[k] = [6]byte(v)
	}
	if len(c.masks) == 0 || len(c.bridges) == 0 || len(c.macs) == 0 {
		return fmt.Errorf("the agent knows %d masks, %d bridges and %d MAC addresses", len(c.masks), len(c.bridges), len(c.macs))
	}
	return nil
}

func setting(o *packetfuzz.Object, name string) (n uint32, err error) {
	var v uint16
	if err := o.Spec.Variables[name].Get(&v); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return uint32(v), nil
}
