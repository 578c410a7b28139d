package probe

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/growth"
)

// TestChangeGrowsLinearly adds ten times as many targets, again, and removes a half of them,
// and the rest.
func TestChangeGrowsLinearly(t *testing.T) {
	growth.Linear(t, 1000, func(size int) func() {
		targets := make([]health.Target, size)
		for i := range targets {
			targets[i] = health.Target{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, byte(i >> 16), byte(i >> 8), byte(i)}), 80), Check: service.DefaultHealthCheck}
		}
		return func() {
			p := New(slog.New(slog.DiscardHandler))
			p.Change(targets, nil)
			p.Change(targets, nil)
			p.Change(nil, targets[:size/2])
			p.Change(nil, targets[size/2:])
			if len(p.States()) > 0 {
				t.Fatal("targets are left")
			}
		}
	})
}
