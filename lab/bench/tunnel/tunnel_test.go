package tunnel

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

func TestForwardRefuses(t *testing.T) {
	for what, addrs := range map[string][2]string{
		"IPv4":   {"[::1]:1", "127.0.0.1:1"},
		"tun000": {"127.0.0.1:1", "127.0.0.1:2"},
	} {
		dev := strings.Repeat("tun0", 4)
		err := Forward(dev, netip.MustParseAddrPort(addrs[0]), netip.MustParseAddrPort(addrs[1]), &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(what, "000")) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
