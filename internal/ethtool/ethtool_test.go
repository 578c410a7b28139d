package ethtool_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/ethtool"
)

// TestCall reads the link state of loopback.
func TestCall(t *testing.T) {
	link := ethtool.Value{Command: unix.ETHTOOL_GLINK, Data: 7}
	if err := ethtool.Call("lo", &link); err != nil || link.Data > 1 {
		t.Errorf("%v, link state %d", err, link.Data)
	}
	if err := ethtool.Call("missing", &link); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a missing device gave %v", err)
	}
}
