package xdp

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/lab/testkit/bpfstack"
)

// TestStackFitsLinux61: newer kernels allow programs more stack.
func TestStackFitsLinux61(t *testing.T) {
	keys := nodekey.Keys{{K0: 1, K1: 2, ID: 3}}
	var variants []*ebpf.CollectionSpec
	for _, a := range []nodekey.Auth{{}, {Keys: keys}, {Keys: keys, Require: true}} {
		for _, on := range []bool{false, true} {
			spec, err := bpf.LoadBalancer()
			must(t, err)
			must(t, auth.Preset(spec, a))
			must(t, spec.Variables["back_by_redirect"].Set(on))
			must(t, spec.Variables["watching"].Set(on))
			variants = append(variants, spec)
		}
	}
	bpfstack.Check(t, variants...)
}
