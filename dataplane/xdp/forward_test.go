package xdp

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/fairlead/fairlead/service"
)

func TestSmoke(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.5.1:8080"))
	in := packet{src: "192.168.0.2:40000", dst: "10.1.1.1:80", flags: "S"}
	v, out := n.run(t, d, in.bytes(t))
	want := in
	want.from, want.to = macEth0, macGateway
	want.outer = &outer{src: "172.16.0.2", dst: "172.16.5.1", ttl: 63}
	if v != tx || !bytes.Equal(out, want.bytes(t)) {
		t.Errorf("%v\n got %s\nwant %s", v, hex.Dump(out), hex.Dump(want.bytes(t)))
	}
	t.Log(d.Describe())
	t.Log(d.Counters())
	t.Log(d.List())
}
