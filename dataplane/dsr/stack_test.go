package dsr

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/lab/testkit/bpfstack"
)

// TestStackFitsLinux61: newer kernels allow programs more stack.
func TestStackFitsLinux61(t *testing.T) {
	keys := nodekey.Keys{{K0: 1, K1: 2, ID: 3}}
	var variants []*ebpf.CollectionSpec
	for _, a := range []nodekey.Auth{{}, {Keys: keys}, {Keys: keys, Require: true}} {
		spec, err := loadDsr()
		if err != nil {
			t.Fatal(err)
		}
		if err := auth.Preset(spec, a); err != nil {
			t.Fatal(err)
		}
		variants = append(variants, spec)
	}
	bpfstack.Check(t, variants...)
}
