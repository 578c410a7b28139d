package observe

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf/perf"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzRecords decodes arbitrary bytes as records of the kernel: a dropped packet and a
// captured one. The result uses only those bytes, and is no longer than the record says.
func FuzzRecords(f *testing.F) {
	var drop, frame bytes.Buffer
	_ = binary.Write(&drop, binary.NativeEndian, bpf.BalancerDropEvent{Time: 1, Reason: 2, Ifindex: 3, Length: 60, Data: [128]uint8{1, 2, 3}})
	_ = binary.Write(&frame, binary.NativeEndian, bpf.BalancerWatchRecord{Time: 1, Number: 2, Length: 60, Caught: 4})
	f.Add(drop.Bytes())
	f.Add(append(frame.Bytes(), 1, 2, 3, 4, 5))
	f.Add([]byte{0})
	follow := &follower{reasons: []string{"a", "b"}, names: map[int]string{3: "eth0"}, boot: time.Unix(0, 0)}
	watch := &Watcher{boot: time.Unix(0, 0)}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzlimit.Time(t)
		if e, ok := follow.decode(b); ok && (len(e.Data) > e.Length || e.Reason == "" || e.Interface == "" || !bytes.Contains(b, e.Data)) {
			t.Errorf("%x is %+v", b, e)
		}
		if c, ok := watch.decode(perf.Record{RawSample: b}); ok && !bytes.HasSuffix(b[:min(len(b), binary.Size(bpf.BalancerWatchRecord{})+len(c.Data))], c.Data) {
			t.Errorf("%x is %+v", b, c)
		}
	})
}
