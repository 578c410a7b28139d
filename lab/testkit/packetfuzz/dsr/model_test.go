package dsr

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func open(t *testing.T) *Target {
	t.Helper()
	if _, err := packetfuzz.OneCPU(0); err != nil {
		t.Fatal(err)
	}
	target, err := New("../../../../dataplane/dsr/dsr_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	})
	return target
}

// Only a world's own load balancers are accepted: those of earlier worlds would be until
// the agent forgets them, at any time.
func TestSendersOfEarlierWorlds(t *testing.T) {
	target := open(t)
	for world := range uint64(8) {
		if err := target.Enter(world); err != nil {
			t.Fatal(err)
		}
		if got := len(target.config.senders); got != len(target.senders) {
			t.Errorf("world %d: %d load balancers are accepted, not %d", world, got, len(target.senders))
		}
	}
}

// TestDrift changes rows behind the model's back.
func TestDrift(t *testing.T) {
	target := open(t)
	if err := target.Enter(1); err != nil {
		t.Fatal(err)
	}
	if got := target.drift(); got != "" {
		t.Errorf("after a world begins: %s", got)
	}
	for _, e := range target.entries {
		changeMethod(target.entries, e.Key, service.Tunnel)
	}
	_ = target.agent.Set(target.entries)
	if got := target.drift(); !strings.Contains(got, "the agent has changed") {
		t.Errorf("with other forwarding modes: %q", got)
	}
}

// TestOnlyRejectionsAreIgnored: an agent that failed otherwise would try again later.
func TestOnlyRejectionsAreIgnored(t *testing.T) {
	rejected, failed := &dsr.RejectedError{Err: errors.New("conflict")}, errors.New("out of memory")
	for _, err := range []error{nil, rejected, errors.Join(errors.Join(rejected, rejected), nil)} {
		if got := withoutRejected(err); got != nil {
			t.Errorf("%v: got %v", err, got)
		}
	}
	if got := withoutRejected(errors.Join(rejected, failed)); !errors.Is(got, failed) || errors.Is(got, rejected) {
		t.Errorf("got %v", got)
	}
}

// A GUE header that ends after its packet is malformed, wherever the packet ends in it.
func TestCutGUEList(t *testing.T) {
	frame, err := hex.DecodeString("02000000010102000000000186dd" + "6000000000401127" + // 64 bytes, UDP
		"20010db8000000000000000000000094" + "20010db8001600010000000000000003" +
		"c00117c000400000" + "11040000" + "9e030200" + // GUE of 17 words: three endpoints and a tag
		"20010db80000000000000000000001050000" + "20010db800000000160024e843fe6c0a8000" + "20a02010101007070e151c23")
	if err != nil {
		t.Fatal(err)
	}
	for cut := range 24 {
		m := model{config: &config{}, counters: map[string]uint64{}}
		b := frame[:len(frame)-cut]
		b[19] = byte(len(b) - 54) // the lengths are consistent
		b[59] = b[19]
		if verdict := m.packet(b, &hook{program: "to_server", place: pod}); verdict != packetfuzz.ActUnspec || m.counters["PASSED_MALFORMED"] != 1 {
			t.Errorf("%d bytes: verdict %d, counted %v", len(b), verdict, m.counters)
		}
		if v := wire.ReadSKB(b, 14, true); v.Kind != wire.Transport {
			t.Fatalf("%d bytes are not UDP: %+v", len(b), v)
		}
	}
}
