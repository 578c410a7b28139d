package packet

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// TestWithoutOptional serves Services on kernels without optional features.
func TestWithoutOptional(t *testing.T) {
	refusals.Optional(t, features.PacketProxy, refusals.Tests{
		Few: "^(TestProtocols|TestReset)$",
		All: "^(TestProtocols|TestReset|TestNoEndpoints|TestHairpin|TestTraffic|TestSourceRanges|TestRestartUnderTraffic)$",
	})
}

// TestWithoutEssential: an agent fails to start on kernels without essential features,
// while its predecessor's programs stay.
func TestWithoutEssential(t *testing.T) {
	if refusals.Attempt(func(at string) error {
		ns, maps, _ := strings.Cut(at, " ")
		return refusals.InNamespace(ns, func() error {
			fresh := Config{Maps: maps, PinDir: fmt.Sprint("/sys/fs/bpf/fresh-", os.Getpid()), MaxFlows: 1 << 10}
			defer os.RemoveAll(fresh.PinDir)
			h, err := Open(fresh)
			if err == nil {
				err = h.Detach()
			}
			return err
		})
	}) {
		return
	}
	w := newWorld(t)
	before := w.half.Describe().Attached
	refusals.Essential(t, features.PacketProxy, w.nodeA.Path()+" "+w.cfg.Maps, func(t *testing.T) {
		if now := w.half.Describe().Attached; len(now) != len(before) || len(now) == 0 {
			t.Errorf("attached: %v, before: %v", now, before)
		}
		// The other component makes these maps.
	}, "prefix-tries", "array-maps")
}
