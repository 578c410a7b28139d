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
	in := packet{src: "192.168.1.2:1024", dst: vips[false], flags: "S"}
	if v, _ := n.run(t, d, in.bytes(t)); v != redirect {
		t.Fatal(v)
	}
	flows, err := d.FlowTable()
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(append(d.Tables(), flows))
	want := fmt.Sprintf("[{rings 251 %d} {chains 0 %d} {frontends 1 %d} {backends 1 %d} {flows 1 %d}]",
		4096<<18, d.config.MaxChains, d.config.MaxFrontends, d.config.MaxBackends, d.config.MaxFlows)
	if got != want {
		t.Errorf("tables %s, want %s", got, want)
	}
}
