// Command packetfuzz fuzzes the programs of bpf with packets, for as long as one likes:
//
//	packetfuzz [-targets balancer,dsr] [-time 8h | -packets 1000000000] [-resume] [-stats DIR]
//
// It alternates between the targets, each for a slice of time. DIR contains its
// statistics, the cases that reached something new and the lines of C that the last turn
// did not reach; -resume continues from there. A violation ends it: its case is reduced,
// printed, and stored among the tests' cases. -corpus writes the corpora that the tests
// begin with.
//
// It creates network namespaces and loads programs, so it runs as root, in its own
// sandbox that leaves nothing behind.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/targets"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "packetfuzz:", err)
		os.Exit(1)
	}
}

func run() error {
	var r session
	names := flag.String("targets", strings.Join(targets.Names(), ","), "which `targets`, of "+strings.Join(targets.Names(), ", "))
	flag.DurationVar(&r.time, "time", 0, "stop after this `time` (default: never)")
	flag.Uint64Var(&r.packets, "packets", 0, "stop after this total number of `packets` of all targets, including earlier runs (default: never)")
	flag.DurationVar(&r.slice, "slice", 5*time.Minute, "`time` per target and round")
	flag.StringVar(&r.dir, "stats", "out/packetfuzz", "`folder` for statistics and findings")
	flag.BoolVar(&r.resume, "resume", false, "continue from the contents of that folder")
	flag.Uint64Var(&r.seed, "seed", 1, "`number` of the first world")
	flag.StringVar(&r.commit, "commit", "", "the commit that is fuzzed, for the stats")
	flag.BoolVar(&r.corpus, "corpus", false, "at the end write the corpora of the tests from this session")
	flag.IntVar(&r.cpu, "cpu", 0, "the `number` of the CPU to use, of those that are allowed")
	flag.StringVar(&targets.Root, "root", targets.Root, "`folder` of a copy of the module, whose objects are fuzzed")
	flag.Parse()
	debug.SetGCPercent(400) // the heap is small, and another thread collects it
	for _, name := range strings.Split(*names, ",") {
		e, err := targets.ByName(name)
		if err != nil {
			return err
		}
		r.targets = append(r.targets, e)
	}
	if err := sandbox.Enter(sandbox.Options{Name: "packetfuzz", Net: true}); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return r.run(ctx)
}
