package cni

import (
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fairlead/fairlead/internal/testkit"
)

// TestNonsenseCanBeDeleted: what a pod's user has asked for is ADD's to refuse, and
// nothing that DEL, which the runtime calls with the same, stumbles over.
func TestNonsenseCanBeDeleted(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	for code, a := range map[uint][2]string{
		types.ErrInvalidEnvironmentVariables: {`"defaultRoute":true`, "IP=ten"},
		types.ErrInvalidNetworkConfig:        {`"runtimeConfig":{"mac":"00:00:00:00:00:00"}`, ""},
	} {
		add := args(r.conf("science", a[0]), "one", pod.Path())
		add.Args = a[1]
		_, err := Add(add)
		refusedWith(t, err, code, "want")
		must(t, Del(add))
		must(t, GC(add))
		must(t, Status(add))
		ipam := args(r.ipam("science", a[0]), "one", pod.Path())
		ipam.Args = a[1]
		_, err = AddAddresses(ipam)
		refusedWith(t, err, code, "want")
		must(t, DelAddresses(ipam))
	}
	r.nothingLeft()
}
