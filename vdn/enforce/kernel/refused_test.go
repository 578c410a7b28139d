package kernel

import (
	"fmt"
	"os"
	"testing"

	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// TestWithoutOptional checks isolation on kernels that reject optional features.
func TestWithoutOptional(t *testing.T) {
	refusals.Optional(t, features.VDN, refusals.Tests{Few: "^TestOnePlan$", All: "^(TestOnePlan|TestConformance)$"})
}

// TestWithoutEssential checks that an agent fails to start on kernels that reject essential
// features.
func TestWithoutEssential(t *testing.T) {
	if refusals.Attempt(func(at string) error {
		return refusals.InNamespace(at, func() error {
			k, err := Open(Config{PinDir: fmt.Sprint("/sys/fs/bpf/fresh-", os.Getpid())})
			if err == nil {
				err = k.Close()
			}
			return err
		})
	}) {
		return
	}
	ns := testkit.NetNS(t)
	refusals.Essential(t, features.VDN, ns.Path(), func(*testing.T) {},
		// These are first used with the first pod or the first plan.
		"htb", "array-maps", "per-cpu-array-maps", "bpf_ktime_get_ns")
}
