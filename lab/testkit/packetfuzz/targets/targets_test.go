package targets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// openFor opens a target for a test, whose thread ends with it.
func openFor(t *testing.T, e Entry) Target {
	t.Helper()
	if _, err := packetfuzz.OneCPU(0); err != nil {
		t.Fatal(err)
	}
	target, err := e.Open(filepath.Join(Root, e.Object))
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

// want reports a violation, whose case it keeps, and any other error.
func want(t *testing.T, e Entry, target Target, err error) {
	t.Helper()
	var f *packetfuzz.Failure
	if errors.As(err, &f) {
		path, bad := e.Keep(f, target.Hooks())
		t.Fatalf("%v\n%s(%s, %v)", f, f.Case.Text(target.Hooks()), path, bad)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever the agents program, the programs do to packets what models predict: in cases
// that once violated a model, in the corpus, and in the same new packets in every run.
func TestPackets(t *testing.T) {
	for _, e := range All {
		t.Run(e.Name, func(t *testing.T) {
			target := openFor(t, e)
			replayCases(t, e, target)
			replayCorpus(t, e, target)
			fuzz(t, e, target, packetfuzz.Limits{Seed: 1, Worlds: 3, WorldPackets: 10_000})
		})
	}
}

func replayCases(t *testing.T, e Entry, target Target) {
	t.Helper()
	cases, err := e.Stored(target.Hooks())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		if _, err := packetfuzz.Replay(target, []*packetfuzz.Case{c}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// replayCorpus also checks that the corpus still reaches most of each program.
func replayCorpus(t *testing.T, e Entry, target Target) {
	t.Helper()
	corpus, err := packetfuzz.LoadCorpus(e.Corpus(), target.Hooks())
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := packetfuzz.Replay(target, corpus)
	want(t, e, target, err)
	all := len(target.Blocks())
	t.Logf("%d cases reach %d of %d blocks", len(corpus), blocks, all)
	if 10*blocks < 4*all {
		t.Errorf("%d cases reach %d of %d blocks: make another corpus (make fuzz-packets ARGS=\"-time 10m -slice 2m -corpus\")", len(corpus), blocks, all)
	}
}

func fuzz(t *testing.T, e Entry, target Target, l packetfuzz.Limits) {
	t.Helper()
	corpus, err := packetfuzz.LoadCorpus(e.Corpus(), target.Hooks())
	if err != nil {
		t.Fatal(err)
	}
	stats := packetfuzz.NewStats(e.Name)
	engine := packetfuzz.NewEngine(target, corpus, stats)
	err = engine.Run(t.Context(), l)
	fmt.Printf("fuzz: elapsed: %v, execs: %d (%.0f/sec), new interesting: %d (total: %d)\n", stats.Elapsed.Round(time.Second),
		stats.Packets, float64(stats.Packets)/stats.Elapsed.Seconds(), stats.Corpus-len(corpus), stats.Corpus)
	t.Logf("seed %d: %d packets in %d worlds, %.0f for each second of a processor, %d of %d blocks",
		l.Seed, stats.Packets, stats.Worlds, float64(stats.Packets)/stats.Processor.Seconds(), stats.Blocks, stats.AllBlocks)
	want(t, e, target, err)
}

// fuzzFor fuzzes a target for the time that scripts/fuzzrun sets, from another seed each
// time.
func fuzzFor(t *testing.T, name string) {
	text := os.Getenv("FAIRLEAD_FUZZ_TIME")
	if text == "" {
		t.Skip("set FAIRLEAD_FUZZ_TIME to a time, or use make fuzz")
	}
	limit, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	fuzz(t, e, openFor(t, e), packetfuzz.Limits{Seed: uint64(time.Now().Unix()) * 1000, Time: limit})
}

func TestFuzzBalancer(t *testing.T) { fuzzFor(t, "balancer") }
func TestFuzzDSR(t *testing.T)      { fuzzFor(t, "dsr") }
func TestFuzzServices(t *testing.T) { fuzzFor(t, "services") }
func TestFuzzSockets(t *testing.T)  { fuzzFor(t, "sockets") }
func TestFuzzVDN(t *testing.T)      { fuzzFor(t, "vdn") }
