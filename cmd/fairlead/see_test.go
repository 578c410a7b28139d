package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/pktgen"
)

// TestSheets checks the tables.
func TestSheets(t *testing.T) {
	in, err := pktgen.Packet{
		From: netip.MustParseAddrPort("192.0.2.7:1234"), To: netip.MustParseAddrPort("10.1.1.1:80"), Protocol: "tcp", Flags: []string{"SYN"},
	}.Frame()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sheet status.Sheet
		want  string
	}{
		"trace": {traceSheet(xdp.Trace{
			Interface: "eth0", In: in, Out: in, Verdict: "XDP_DROP", Drop: "no-frontend", Attached: "program 57",
			Would: []string{"open a flow", "take a turn"},
			Steps: []xdp.TraceStep{{Note: "packet", Text: "parsed as TCP"}, {Note: "drop", Text: "dropped: no-frontend"}},
		}), `in        eth0, 54 bytes
          Ethernet 02:00:00:00:00:01 > 00:00:00:00:00:00
          IPv4 192.0.2.7 > 10.1.1.1, TTL 64, TCP, 40 bytes
          TCP 1234 > 80 [SYN] seq 1 ack 1, 0 bytes of data
why       parsed as TCP
          dropped: no-frontend
verdict   XDP_DROP: dropped, no-frontend
would     open a flow
          take a turn
attached  program 57
`},
		"flows": {flowsSheet([]api.Flow{{Flow: dataplane.Flow{
			Client: netip.MustParseAddrPort("192.0.2.7:1234"), VIP: netip.MustParseAddrPort("10.1.1.1:80"),
			Server: netip.MustParseAddrPort("172.16.5.1:8080"), Protocol: service.TCP, State: "established", Idle: 3 * time.Second,
		}, At: "balancer"}}), `AT        PROTOCOL  CLIENT          VIP          BACKEND          STATE        IDLE
balancer  TCP       192.0.2.7:1234  10.1.1.1:80  172.16.5.1:8080  established  3s
`},
		"no flows": {flowsSheet(nil), "no flows\n"},
		"drops": {(&drops{byCPU: true}).sheet([]dropped{{"no-route", 5, []uint64{2, 3}}, {"no-frontend", 1, []uint64{0, 1}}}), `REASON       PACKETS  CPU0  CPU1
no-route     5        2     3
no-frontend  1        0     1
`},
		"no drops": {(&drops{}).sheet(nil), "no drops\n"},
	} {
		var b bytes.Buffer
		if err := status.Write(&b, c.sheet, status.Table); err != nil || b.String() != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, &b, c.want)
		}
		b.Reset()
		if err := status.Write(&b, c.sheet, status.JSON); err != nil || b.Len() == 0 {
			t.Errorf("%s as JSON: %v", name, err)
		}
	}
}

func TestDroppedOf(t *testing.T) {
	counts := map[string][]uint64{"no-route": {2, 3}, "too-big": {0, 0}}
	if list, err := droppedOf(counts, nil); err != nil || len(list) != 1 || list[0].Packets != 5 {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := droppedOf(counts, []string{"too-big"}); err != nil || len(list) != 1 || list[0].Packets != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := droppedOf(counts, []string{"nosuch"}); err == nil || !strings.Contains(err.Error(), "unknown drop reason nosuch: use one of [no-route too-big]") {
		t.Errorf("%v", err)
	}
}
