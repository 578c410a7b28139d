package gather

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzBoundPort checks that a line of /proc/net/tcp or udp yields a port and an inode, or
// nothing, and that the line of a listening socket yields its port.
func FuzzBoundPort(f *testing.F) {
	f.Add("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", false, uint16(1))
	f.Add("   0: 00000000:00B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0", false, uint16(179))
	f.Add("   0: 0:FFFFF 0 07 4 5 6 7 8 9", true, uint16(0))
	f.Fuzz(func(t *testing.T, line string, udp bool, port uint16) {
		fuzzlimit.Time(t)
		if _, inode, ok := boundPort(line, udp); ok && inode == "" {
			t.Errorf("%q has no inode", line)
		}
		state := map[bool]string{false: "0A", true: "07"}[udp]
		own := fmt.Sprintf("   0: 00000000:%04X 00000000:0000 %s 0:0 0:0 0 0 0 77 1", port, state)
		if got, inode, ok := boundPort(own, udp); !ok || got != port || inode != "77" {
			t.Errorf("%q is %d, %q, %v", own, got, inode, ok)
		}
	})
}
