package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/lab/cputime"
	"github.com/fairlead/fairlead/lab/testkit"
)

// tracked returns the i-th VIP of frontends that track flows, each with one backend.
func tracked(t *testing.T, d *DataPlane, i int, server string) (vip string) {
	t.Helper()
	vip = fmt.Sprintf("10.1.1.%d:80", i+1)
	f := frontend(service.Tunnel, vip, service.TCP, server)
	f.Survival = service.FlowTable
	upsert(t, d, f)
	return vip
}

// lastOfFlow sends packets of a flow to a VIP, and returns the last one as it leaves.
func lastOfFlow(t *testing.T, n *testNet, d *DataPlane, vip string) (out []byte) {
	t.Helper()
	testkit.Do(t, n.balancer, func() error {
		return cputime.Pinned(func() error {
			for _, flags := range []string{"S", "A", "A"} {
				v, frame, err := n.runHere(d, packet{src: clients[false], dst: vip, flags: flags}.bytes(t))
				if err != nil || v != redirect {
					return fmt.Errorf("a packet's verdict is %v: %w", v, err)
				}
				out = frame
			}
			return nil
		})
	})
	return out
}

// TestFrontendsShareNextHops: each frontend that tracks flows has an entry of its own for a
// backend. Only the first one's packets query the kernel.
func TestFrontendsShareNextHops(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	// Returns the last tick for which the next hop of the VIP's backend is cached.
	until := func(vip string) (tick uint64) {
		key := service.Key{VIP: netip.MustParseAddrPort(vip).Addr(), Port: 80, Protocol: service.TCP}
		id := d.programmed[key].members[0].id
		must(t, bpf.EachCPU(d.kernel.ServerCpu, id, func(c bpf.BalancerServerCpu) { tick = max(tick, c.Hop.Tick) }))
		return tick
	}
	last := uint64(0)
	for i := range 30 { // on a busy machine, a next hop may expire between two packets
		vip := tracked(t, d, i, servers[false])
		lastOfFlow(t, n, d, vip)
		now := until(vip)
		if now == 0 {
			t.Fatal("the next hop is not cached")
		}
		if now == last {
			return
		}
		last = now
		time.Sleep(25 * time.Millisecond) // more than a tick: a query has another result
	}
	t.Error("30 frontends with the same backend have queried the kernel for its next hop")
}

// TestNextHopsInOnePlace: backends whose addresses have the same place in the cache keep
// their own next hops.
func TestNextHopsInOnePlace(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	place := func(a netip.Addr) uint32 {
		v4 := a.As4()
		sum := binary.BigEndian.Uint32(v4[:]) ^ 0xffff // of a mapped address: ::ffff:a
		return uint32(uint64(sum*0x9e3779b1) * uint64(c.MaxBackends) >> 32)
	}
	near := netip.MustParseAddr("172.16.0.10") // a neighbor
	far := netip.MustParseAddr("172.20.0.1")   // behind the gateway
	for place(far) != place(near) {
		far = far.Next()
	}
	testkit.Do(t, n.balancer, func() error { neighbor(t, n.eth0, near.String(), macServer1); return nil })
	vips := []string{tracked(t, d, 0, near.String()+":8080"), tracked(t, d, 1, far.String()+":8080")}
	for range 10 {
		for i, mac := range []net.HardwareAddr{macServer1, macGateway} {
			if out := lastOfFlow(t, n, d, vips[i]); !bytes.Equal(out[:6], mac) {
				t.Fatalf("packets to backend %d go to %v, want %v", i, net.HardwareAddr(out[:6]), mac)
			}
		}
	}
}

// TestSharedNextHopsFollowANeighbor: a change of the kernel's tables reaches all frontends.
func TestSharedNextHopsFollowANeighbor(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	vips := []string{tracked(t, d, 0, servers[false]), tracked(t, d, 1, servers[false])}
	for _, mac := range []net.HardwareAddr{macGateway, macServer1, macGateway} {
		testkit.Do(t, n.balancer, func() error { neighbor(t, n.eth0, "172.16.0.1", mac); return nil })
		testkit.Eventually(t, patience, func() error {
			for _, vip := range vips {
				if out := lastOfFlow(t, n, d, vip); !bytes.Equal(out[:6], mac) {
					return fmt.Errorf("packets to %s go to %v, want %v", vip, net.HardwareAddr(out[:6]), mac)
				}
			}
			return nil
		})
	}
}
