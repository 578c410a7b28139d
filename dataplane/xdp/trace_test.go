package xdp

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/observe"
	"github.com/fairlead/fairlead/lab/testkit"
)

func (n *testNet) trace(t *testing.T, d *DataPlane, r TraceRequest) (got Trace) {
	t.Helper()
	testkit.Do(t, n.balancer, func() (err error) {
		got, err = d.TracePacket(t.Context(), r, func(k service.Key) string {
			if k.Port == 80 {
				return "default/web"
			}
			return ""
		})
		return err
	})
	return got
}

// words returns a trace's steps as one text.
func words(t Trace) string {
	var b strings.Builder
	for _, s := range t.Steps {
		b.WriteString(s.Note + ": " + s.Text + "\n")
	}
	return b.String()
}

// Traces as tables: input, verdict, and required text.
func TestTrace(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	both(t, d, frontend(service.Tunnel, "10.1.1.1:80", 0, "172.16.5.1:8080"))
	g := frontend(service.Tunnel, "10.1.1.1:81", service.TCP, "172.16.5.1:8080")
	g.Deny = prefixes("192.0.2.7/32")
	upsert(t, d, g)
	unreachable := frontend(service.Tunnel, "10.1.1.1:82", service.TCP, "172.31.5.1:8080")
	upsert(t, d, unreachable)
	for _, c := range []struct {
		name    string
		p       packet
		verdict string
		drop    string
		words   []string
	}{
		{"a SYN", packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80", flags: "S"}, "XDP_REDIRECT", "", []string{
			"packet: parsed as TCP, 40 bytes, opens a flow\n",
			"frontend: frontend TCP 10.1.1.1:80 (Service default/web): forwarding mode tunnel, scheduler maglev\n",
			" of 251\n", "server: the slot belongs to 172.16.5.1:8080, which receives the new flow\n",
			"ask: kernel route lookup: route found, MTU 1500\n", "next-hop: sent on eth0 to 02:00:00:00:00:01\n",
		}},
		{"of a flow", packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80", flags: "A"}, "XDP_REDIRECT", "", []string{
			"continues a flow\n", "no other backend can have its flows\n",
		}},
		{"not ours", packet{src: "192.0.2.7:1234", dst: "203.0.113.9:80"}, "XDP_PASS", "", []string{"not-ours: "}},
		{"no service", packet{src: "192.0.2.7:1234", dst: "10.1.1.1:8080"}, "XDP_DROP", "no-frontend", []string{
			"unserved: the destination is a VIP, but no frontend has this port and protocol\n", "drop: dropped: no-frontend\n",
		}},
		{"denied", packet{src: "192.0.2.7:1234", dst: "10.1.1.1:81"}, "XDP_DROP", "source-denied", []string{"source ranges or rate limits\n"}},
		{"let in", packet{src: "192.0.2.8:1234", dst: "10.1.1.1:81"}, "XDP_REDIRECT", "", []string{"guard: allowed by source ranges and rate limits\n"}},
		{"no way", packet{src: "192.0.2.7:1234", dst: "10.1.1.1:82"}, "XDP_DROP", "no-route", []string{"ask: kernel route lookup: unreachable\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, err := d.Counters()
			must(t, err)
			drops := dropsOf(d, c.drop)
			frame := c.p.bytes(t)
			got := n.trace(t, d, TraceRequest{Frame: frame})
			if got.Verdict != c.verdict || got.Drop != c.drop || got.Interface != "eth0" || len(got.Would) != 0 {
				t.Errorf("%+v", got)
			}
			for _, w := range c.words {
				if !strings.Contains(words(got), w) {
					t.Errorf("no word of %q in\n%s", w, words(got))
				}
			}
			if !strings.HasSuffix(got.Attached, ", of the same source as the traced one; it was not run") {
				t.Errorf("attached: %s", got.Attached)
			}
			v, out := n.run(t, d, frame)
			if !strings.EqualFold("XDP_"+v.String(), c.verdict) || !bytes.Equal(out, got.Out) {
				t.Errorf("the attached program: %v %x, traced %x", v, out, got.Out)
			}
			after, err := d.Counters()
			must(t, err)
			counted := dropsOf(d, c.drop) - drops
			for i := range after {
				counted += after[i].Total.Packets - before[i].Total.Packets
			}
			if want := uint64(1); counted != want && c.name != "not ours" { // that of the attached program
				t.Errorf("%d packets counted, want %d", counted, want)
			}
		})
	}
}

func TestTraceRefuses(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	nobody := func(service.Key) string { return "" }
	testkit.Do(t, n.balancer, func() error {
		if _, err := d.TracePacket(t.Context(), TraceRequest{Frame: make([]byte, 13)}, nobody); !errors.Is(err, observe.ErrFrame) {
			t.Errorf("13 bytes: %v", err)
		}
		_, err := d.TracePacket(t.Context(), TraceRequest{Frame: make([]byte, 60), Interface: "eth9"}, nobody)
		if err == nil || !strings.Contains(err.Error(), `interface "eth9": the data plane uses only eth0`) {
			t.Errorf("eth9: %v", err)
		}
		return nil
	})
}

// A trace reports if the attached program is not the agent's own.
func TestTraceNamesTheAttachedProgram(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	other, err := d.program.Variant(func(*ebpf.CollectionSpec) error { return nil })
	must(t, err)
	defer other.Close()
	must(t, d.links.Swap(other.Balancer))
	got := n.trace(t, d, TraceRequest{Frame: packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80"}.bytes(t)})
	if !strings.Contains(got.Attached, ", not this agent's program ") {
		t.Error(got.Attached)
	}
	must(t, d.links.Swap(d.kernel.Balancer))
}

// A destination of zeros is the interface's own address.
func TestTraceFillsIn(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	frame := packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80"}.bytes(t)
	clear(frame[:6])
	if got := n.trace(t, d, TraceRequest{Frame: frame}); !bytes.Equal(got.In[:6], macEth0) {
		t.Errorf("to %x", got.In[:6])
	}
}
