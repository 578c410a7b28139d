package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/throughput"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// scienceWhole gives network science host devices, and visitors macvlan devices.
func scienceWhole(node, pod *lab.Host, device string) (vdn.UpReport, error) {
	if strings.HasPrefix(pod.Name(), "a") {
		return domain.HostDevice(node, pod, device)
	}
	return domain.Macvlan(node, pod, device)
}

// TestWholeDevices checks that a network's max is enforced at a host device whose pod sends
// more, and for pods that receive from it.
func TestWholeDevices(t *testing.T) {
	const most vdn.Rate = 16_000_000
	f := newField(t, scienceWhole, vdn.Uplink{Device: domain.Uplink, Rate: 1_000_000_000})
	apply := func(science vdn.Slice) error {
		science.Mode = vdn.HostDevice
		return f.k.Apply(t.Context(), f.Plan("n1", 1, science, vdn.Slice{}))
	}
	if err := apply(vdn.Slice{MaxRate: most}); err != nil {
		t.Fatal(err)
	}
	f.hello("a2")
	testkit.Eventually(t, time.Minute, func() error {
		if got := f.poured("a2", 3*most); got < 0.8*float64(most) || got > 1.1*float64(most) {
			return fmt.Errorf("a2 receives %.1f Mbit/s of the whole device of a1, whose network's max is %s", got/1e6, most)
		}
		return nil
	})
	if f.drops(enforce.OverRate) == 0 {
		t.Error("no drop is counted as over-rate")
	}
	if err := apply(vdn.Slice{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		if got := f.poured("a2", 3*most); got < 1.5*float64(most) {
			return fmt.Errorf("a2 receives %.1f Mbit/s without a max", got/1e6)
		}
		return nil
	})
}

// poured returns the rate that a pod receives, in bit/s of frames, while a1 sends it
// datagrams at a given rate.
func (f *field) poured(to string, rate vdn.Rate) float64 {
	f.t.Helper()
	ctx, stop := context.WithTimeout(f.t.Context(), 1500*time.Millisecond)
	defer stop()
	_, before := f.sinks[to].Received()
	begun := time.Now()
	if err := throughput.UDP(ctx, f.Host("a1"), netip.AddrPortFrom(f.Pods[to].Addrs[0], 9), uint64(rate)); err != nil {
		f.t.Fatal(err)
	}
	_, after := f.sinks[to].Received()
	return float64(after-before) * 8 / time.Since(begun).Seconds() * 1514 / throughput.Datagram
}

// TestGuaranteesOfWholeDevices checks that a guarantee is rejected if the device's link is
// too slow or not its own, and that the rest of the plan is enforced.
func TestGuaranteesOfWholeDevices(t *testing.T) {
	f := newField(t, scienceWhole, vdn.Uplink{Device: domain.Uplink, Rate: 100_000_000_000})
	apply := func(guarantee vdn.Rate) error {
		return f.k.Apply(t.Context(), f.Plan("n1", 1, vdn.Slice{Mode: vdn.HostDevice, GuaranteedRate: guarantee}, vdn.Slice{}))
	}
	const carries vdn.Rate = 10_000_000_000 // veth reports this (drivers/net/veth.c, veth_get_link_ksettings)
	if err := apply(carries); err != nil {
		t.Errorf("a guarantee that the device carries: %v", err)
	}
	err := apply(2 * carries)
	if why := enforce.Failed(err)["a1.net0"]; why == nil || !strings.Contains(why.Error(), "network science: device net0 carries 10G, but guaranteedRate of the network is 20G") {
		t.Errorf("a guarantee of 20G: %v", err)
	}
	f.hello("a2")
}

// TestGuaranteesOfStackedDevices checks that they are rejected: their link is another
// device's.
func TestGuaranteesOfStackedDevices(t *testing.T) {
	f := newField(t, domain.Macvlan)
	err := f.k.Apply(t.Context(), f.Plan("n1", 1, vdn.Slice{Mode: vdn.HostDevice, GuaranteedRate: 1_000_000}, vdn.Slice{Mode: vdn.HostDevice}))
	if failed := enforce.Failed(err); len(failed) != 1 || !strings.Contains(fmt.Sprint(failed["a1.net0"]), "device net0 shares the wire of ") {
		t.Errorf("a guarantee on a device of another: %v", err)
	}
}
