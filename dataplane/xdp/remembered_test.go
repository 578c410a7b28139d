package xdp

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// What a draining load balancer waits for: live flows, including those that have only
// started to end, but not those that were reset, nor untracked ones.
func TestRememberedFlows(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	const other = "10.1.1.99:80"
	upsert(t, d, frontend(service.Tunnel, other, service.TCP, servers[false]))
	want := func(flows int, after string) {
		t.Helper()
		if got, err := d.Remembered(); err != nil || got != flows {
			t.Errorf("%s: %d flows are remembered, want %d: %v", after, got, flows, err)
		}
	}
	send := func(client int, vip, flags string) {
		t.Helper()
		in := packet{src: fmt.Sprintf("192.168.1.2:%d", 1024+client), dst: vip, flags: flags}
		if v, _ := n.run(t, d, in.bytes(t)); v != redirect {
			t.Fatalf("%s of client %d: %v, %v", flags, client, v, d.Describe().Drops)
		}
	}
	want(0, "at first")
	for client := range 5 {
		send(client, vips[false], "S")
		send(client, other, "S")
	}
	want(5, "after five connections through each")
	send(0, vips[false], "FA")
	want(5, "after a FIN")
	send(1, vips[false], "R")
	want(5, "after a RST in a client's name")
	back := packet{src: servers[false], flags: "RA"}
	for f, err := range d.EachFlow(dataplane.FlowQuery{}) {
		must(t, err)
		if f.Client.Port() == 1025 {
			back.dst = f.Source.String()
		}
	}
	if v, _ := n.run(t, d, back.bytes(t)); v != redirect {
		t.Fatalf("the server's RST: %v, %v", v, d.Describe().Drops)
	}
	want(4, "after its server's RST")
}
