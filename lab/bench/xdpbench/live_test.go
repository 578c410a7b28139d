package xdpbench

import (
	"testing"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestLive runs a short measurement. No frame may be lost, and every returned frame must
// be what the program is expected to send.
func TestLive(t *testing.T) {
	report, err := MeasureLive(t.Context(), LiveOptions{Rounds: 2, Frames: 1 << 14, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 5 {
		t.Fatalf("%d rows", len(report.Rows))
	}
	for i, r := range report.Rows {
		if r.Measured <= 0 || r.Min > r.Measured || r.Measured > r.Max || r.Runs != 2 {
			t.Errorf("%+v", r)
		}
		if compared := r.PeerMeasured != nil; compared != (i > 0) {
			t.Errorf("%s: compared with a peer: %v", r.Case, compared)
		}
		if aimed := r.Goal != nil; aimed != (i == 3) || aimed && *r.Met != (r.Measured <= *r.Goal) {
			t.Errorf("%s: goal %v, met %v", r.Case, r.Goal, r.Met)
		}
	}
	testkit.NoLeftovers(t)
}

// With the tunnel, every frame comes back, and 20 bytes longer.
func TestLiveFramesGoThroughTheBalancer(t *testing.T) {
	l, err := NewLive()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const frames = 1 << 14
	for name, c := range map[string]struct {
		put   func() error
		bytes float64
	}{
		"swap":    {l.Swap, 64},
		"balance": {func() error { return l.Balance(tunnelFrontend()) }, 84},
	} {
		if err := c.put(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r, err := l.Run(frames, 1<<10)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Sent < frames || r.Sunk < r.Sent*9/10 || r.Bytes != c.bytes {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
