// Command seeded measures how long the packet fuzzer takes to find bugs that are seeded
// in the programs of bpf (lab/testkit/packetfuzz/seeded), one after the other on one CPU,
// and writes a table:
//
//	seeded [-limit 10m] [-run REGEXP] [-seed 1]
//
// It runs as root and needs clang. It fails if a bug is not found within the limit, which
// is CPU time.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/seeded"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "seeded:", err)
		os.Exit(1)
	}
}

func run() error {
	limit := flag.Duration("limit", 10*time.Minute, "processor `time` for each bug")
	only := flag.String("run", "", "only bugs whose names match this `regexp`")
	seed := flag.Uint64("seed", 1, "`number` of the first world")
	cpu := flag.Int("cpu", 0, "the `number` of the CPU to use, of those that are allowed")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if err := sandbox.Enter(sandbox.Options{Name: "seeded", Net: true}); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Println("| bug | target | what goes wrong | found after | packets | steps |")
	fmt.Println("|---|---|---|---|---|---|")
	missed := 0
	for _, b := range seeded.Bugs {
		if !wanted.MatchString(b.Name) {
			continue
		}
		r, err := hunt(ctx, b, *limit, *seed, *cpu)
		if err != nil {
			return err
		}
		after := r.CPU.Round(10 * time.Millisecond).String()
		if !r.Found {
			missed++
			after = "not within " + after
		}
		fmt.Printf("| %s | %s | %s | %s | %d | %d |\n", b.Name, b.Target, b.What, after, r.Packets, r.Steps)
	}
	if missed > 0 {
		return fmt.Errorf("%d bugs were not found", missed)
	}
	return nil
}

// hunt runs on its own thread, which is in another namespace afterwards.
func hunt(ctx context.Context, b seeded.Bug, limit time.Duration, seed uint64, cpu int) (r seeded.Result, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err = packetfuzz.OneCPU(cpu); err == nil {
			r, err = seeded.Hunt(ctx, b, limit, seed)
		}
	}()
	<-done
	return r, err
}
