package xdp

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// TestTables counts what is programmed, and flows.
func TestTables(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	for _, vip := range []string{"10.1.1.77:80", "10.1.1.78:80"} { // these share a ring and a list
		upsert(t, d, frontend(service.Tunnel, vip, service.TCP, "172.16.6.1:1"))
	}
	in := packet{src: "192.168.1.2:1024", dst: vips[false], flags: "S"}
	if v, _ := n.run(t, d, in.bytes(t)); v != redirect {
		t.Fatal(v)
	}
	flows, err := d.FlowTable()
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(append(d.Tables(), flows))
	want := fmt.Sprintf("[{rings 502 %d} {chains 0 %d} {lists 6 %d} {list-entries 3 %d} {frontends 3 %d} {backends 2 %d} {flows 1 %d}]",
		4096<<18, d.config.MaxChains, 4096<<18, d.config.MaxMembers, d.config.MaxFrontends, d.config.MaxBackends, d.config.MaxFlows)
	if got != want {
		t.Errorf("tables %s, want %s", got, want)
	}
}
