package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/throughput"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// TestOnePlan is a small part of the conformance suite for other kernels, where the full
// suite takes too long: tc programs attached by what the kernel supports, and nothing left
// behind.
func TestOnePlan(t *testing.T) {
	d, err := domain.Build(t.Context(), domain.Macvlan)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, name := range []string{"a2", "b1"} {
		sink, err := throughput.Listen(d.Host(name), 9)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
	}
	n1 := d.Host("n1")
	var k *Kernel
	testkit.Do(t, n1.Namespace(), func() (err error) {
		k, err = Open(Config{PinDir: pins(n1), Gateway: true, Uplinks: []vdn.Uplink{{Device: domain.Uplink, Rate: 1_000_000_000}}})
		return err
	})
	if err := k.Apply(t.Context(), d.Plan("n1", 1, vdn.Slice{GuaranteedRate: 400_000_000, MaxRatePerHost: 500_000_000}, vdn.Slice{})); err != nil {
		t.Fatal(err)
	}
	dial := func(to netip.Addr, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		c, err := d.Host("a1").Dial(ctx, netip.Addr{}, netip.AddrPortFrom(to, 9))
		if err == nil {
			c.Close()
		}
		return err
	}
	for _, addr := range d.Pods["a2"].Addrs {
		testkit.Eventually(t, time.Minute, func() error { return dial(addr, 10*time.Second) })
	}
	for _, addr := range d.Pods["b1"].Addrs {
		if dial(addr, 2*time.Second) == nil {
			t.Errorf("a1 reaches %s, of another network", addr)
		}
	}
	counters, err := k.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var dropped, sent uint64
	for _, c := range counters {
		dropped += c.Drops[enforce.Isolated]
		sent += c.SentBytes
	}
	if dropped == 0 || sent == 0 {
		t.Errorf("counters: %+v", counters)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Do(t, n1.Namespace(), func() error { return Clean(pins(n1)) })
	if left := held(t, n1, d.Pods["a1"]); len(left) > 0 {
		t.Error(fmt.Errorf("left over: %v", left))
	}
}
