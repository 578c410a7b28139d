package openvswitch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/vdn"
)

// FuzzDumps parses arbitrary input as ovs-ofctl output: no panic, no more results than
// lines, and valid lines after invalid ones are still read.
func FuzzDumps(f *testing.F) {
	f.Add("OFPST_METER_CONFIG reply (OF1.3) (xid=0x2):\nmeter=1 kbps burst stats bands=\ntype=drop rate=400 burst_size=40\n", uint32(7), uint64(400e6))
	f.Add("OFPST_METER reply (OF1.3) (xid=0x2):\nmeter:1 flow_count:1 packet_in_count:2 byte_in_count:3 duration:0.1s bands:\n0: packet_count:4 byte_count:5\n", uint32(1), uint64(9))
	f.Add(" cookie=0xfa00000000000001, duration=1s, table=0, n_packets=3, n_bytes=180, priority=200,arp actions=drop\n", uint32(1), uint64(1))
	f.Add("meter\nmeter=\nmeter:\ncookie=0x", uint32(0), uint64(0))
	f.Fuzz(func(t *testing.T, out string, id uint32, most uint64) {
		fuzzlimit.Time(t)
		lines := strings.Count(out, "\n") + 1
		if n := max(len(metersIn(out)), len(droppedIn(out)), len(flowsIn(out))); n > lines {
			t.Errorf("%d are read of %d lines", n, lines)
		}
		wanted := spec(id, vdn.Rate(most))
		if got := metersIn(out + "\n" + wanted + "\n"); got[id] != rateIn(wanted) {
			t.Errorf("%s: read as %d kbit/s", wanted, got[id])
		}
		c := cookie{kind: kindSent, number: id}
		before := flowsIn(out)[c]
		after := flowsIn(fmt.Sprintf("%s\n cookie=0x%x, table=0, n_packets=3, n_bytes=180, priority=1 actions=drop\n", out, c.number64()))[c]
		if after.packets != before.packets+3 || after.bytes != before.bytes+180 {
			t.Errorf("%+v became %+v, want 3 packets and 180 bytes more", before, after)
		}
	})
}
