package main

import (
	"bytes"
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/pktgen"
)

func TestFlowQuery(t *testing.T) {
	one := dataplane.Flow{
		Client: netip.MustParseAddrPort("192.0.2.7:1234"), VIP: netip.MustParseAddrPort("10.1.1.1:80"),
		Server: netip.MustParseAddrPort("172.16.5.1:8080"), Protocol: service.TCP,
	}
	for query, want := range map[string]bool{
		"": true, "vip=10.1.1.1": true, "vip=10.1.1.1:80": true, "vip=10.1.1.1:81": false, "vip=10.1.1.2": false,
		"client=192.0.2.7&backend=172.16.5.1:8080": true, "client=192.0.2.7&backend=172.16.5.2": false, "limit=3": true,
	} {
		q, err := flowQueryOf(mustQuery(t, query))
		if err != nil || q.Takes(one) != want {
			t.Errorf("%q: %v, %v", query, !want, err)
		}
	}
	if q, err := flowQueryOf(mustQuery(t, "limit=2")); err != nil || q.Limit != 2 {
		t.Errorf("%+v, %v", q, err)
	}
	for _, bad := range []string{"vip=x", "limit=x", "limit=-1"} {
		if _, err := flowQueryOf(mustQuery(t, bad)); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

func mustQuery(t *testing.T, q string) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	for _, pair := range strings.Split(q, "&") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			values[key] = []string{value}
		}
	}
	return values
}

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
		"flows": {flowsSheet([]flow{{dataplane.Flow{
			Client: netip.MustParseAddrPort("192.0.2.7:1234"), VIP: netip.MustParseAddrPort("10.1.1.1:80"),
			Server: netip.MustParseAddrPort("172.16.5.1:8080"), Protocol: service.TCP, State: "established", Idle: 3 * time.Second,
		}, "balancer"}}), `AT        PROTOCOL  CLIENT          VIP          BACKEND          STATE        IDLE
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

// A frame that trace writes can be read back.
func TestPcapThereAndBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.pcap")
	frame := bytes.Repeat([]byte{1, 2, 3}, 20)
	if err := writePcap(path, frame); err != nil {
		t.Fatal(err)
	}
	if got, err := frameOf(path, 1); err != nil || !bytes.Equal(got, frame) {
		t.Errorf("%x, %v", got, err)
	}
	if _, err := frameOf(path, 2); err == nil || !strings.Contains(err.Error(), "has only 1") {
		t.Errorf("the second of one: %v", err)
	}
	if _, err := frameOf(path, 0); err == nil {
		t.Error("the zeroth passes")
	}
}

// A reader that has seen enough receives nothing more, however much has arrived at once.
func TestEachEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var seen []int
	err := each(ctx, strings.NewReader("1 2 3 4"), func(n int) error {
		if seen = append(seen, n); n == 2 {
			cancel()
		}
		return nil
	})
	if err != nil || !slices.Equal(seen, []int{1, 2}) {
		t.Errorf("%v, %v; want 1 and 2", seen, err)
	}
}

// A stream that ends in the middle of a block results in a valid file.
func TestCopyBlocks(t *testing.T) {
	packet := append([]byte{6, 0, 0, 0, 16, 0, 0, 0, 1, 2, 3, 4}, 16, 0, 0, 0)
	whole := bytes.Repeat(packet, 3)
	var out bytes.Buffer
	if n, _, err := copyBlocks(t.Context(), &out, bytes.NewReader(whole)); n != 3 || err != nil || !bytes.Equal(out.Bytes(), whole) {
		t.Errorf("%d, %v", n, err)
	}
	out.Reset()
	if n, _, err := copyBlocks(t.Context(), &out, bytes.NewReader(whole[:40])); n != 2 || err == nil || !bytes.Equal(out.Bytes(), whole[:32]) {
		t.Errorf("cut off: %d, %v, %d bytes", n, err, out.Len())
	}
	if _, _, err := copyBlocks(t.Context(), &out, strings.NewReader("HTTP/1.1 200 OK and so on")); err == nil {
		t.Error("no capture passes")
	}
}
