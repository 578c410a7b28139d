package dsr

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit"
)

// repeat runs a program on frames, one after the other, on its own CPU if there are
// enough, until done returns true. see receives the output.
func (n *node) repeat(t *testing.T, prog *ebpf.Program, ifindex int, frames [][]byte, done func() bool, see func(out []byte)) {
	t.Helper()
	opts := ebpf.RunOptions{Context: make([]byte, 192), DataOut: make([]byte, 2048)}
	binary.NativeEndian.PutUint32(opts.Context.([]byte)[40:], uint32(ifindex)) // struct __sk_buff
	room := opts.DataOut
	testkit.Do(t, n.ns, func() error {
		for i := 0; !done(); i++ {
			opts.Data, opts.DataOut = frames[i%len(frames)], room
			if _, err := prog.Run(&opts); err != nil {
				return err
			}
			see(opts.DataOut)
		}
		return nil
	})
}

// TestFlowsOnSeveralCPUs: one CPU assigns a flow to two VIPs alternately, while others
// answer and start flows in the same set. The model: a reply has one VIP and its port,
// the other and its port, or no flow; never one's address and the other's port. Such a
// mixture needs a write between two reads a nanosecond apart, so this does not prove that
// it cannot happen.
func TestFlowsOnSeveralCPUs(t *testing.T) {
	n := small(t, 8)
	first, other := vip, netip.AddrPortFrom(vip.Addr().Next(), vip.Port()+1)
	n.set(t, entry(service.Tunnel, first, pod, service.TCP), entry(service.Tunnel, other, pod, service.TCP))
	in := func(v netip.AddrPort, flags string) []byte {
		return wire{client: client, dst: v, flags: flags, tunnel: pod.Addr()}.bytes(t)
	}
	turns := [][]byte{in(first, "S"), in(first, "R"), in(other, "S"), in(other, "R")}
	var flood [][]byte
	for i := range 64 {
		flood = append(flood, wire{client: netip.AddrPortFrom(client.Addr(), uint16(50000+i)), dst: first, flags: "S", tunnel: pod.Addr()}.bytes(t))
	}
	answer := wire{client: pod, dst: client}.bytes(t)
	seen := map[netip.AddrPort]int{}
	until := time.Now().Add(4 * time.Second)
	done := func() bool { return !time.Now().Before(until) }
	var group sync.WaitGroup
	background := func(frames [][]byte) {
		group.Go(func() { n.repeat(t, n.agent.obj.ToServer, n.pod, frames, done, func([]byte) {}) })
	}
	background(turns)
	for range max(0, runtime.NumCPU()-2) {
		background(flood)
	}
	n.repeat(t, n.agent.obj.FromServer, n.pod, [][]byte{answer}, done, func(out []byte) {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte(out[26:30])), binary.BigEndian.Uint16(out[34:36]))
		seen[from]++
	})
	group.Wait()
	for _, v := range []netip.AddrPort{first, other} {
		if seen[v] == 0 {
			t.Errorf("no answer was of %s: %v", v, seen)
		}
		delete(seen, v)
	}
	delete(seen, pod)
	if len(seen) > 0 {
		t.Errorf("answers were of %v", seen)
	}
}
