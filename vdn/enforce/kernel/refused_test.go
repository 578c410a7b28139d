package kernel

import (
	"fmt"
	"os"
	"testing"

	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// TestWithoutOptional has networks kept apart on kernels that refuse what is
// optional.
func TestWithoutOptional(t *testing.T) {
	refusals.Optional(t, features.VDN, refusals.Tests{Few: "^TestOnePlan$", All: "^(TestOnePlan|TestConformance)$"})
}

// TestWithoutEssential has an agent fail to start on kernels that refuse what is
// essential.
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
		// These come with the first pod or the first plan.
		"htb", "array-maps", "per-cpu-array-maps", "bpf_ktime_get_ns")
}
