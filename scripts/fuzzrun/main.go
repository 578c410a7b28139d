// Command fuzzrun runs every Go fuzz target of the module, one after another:
//
//	fuzzrun [-time 1m] [-run REGEXP] [PACKAGE...]
//
// The time is the total fuzzing budget. Each target gets the same share; building the
// instrumented tests is not included. An input that fails is left in the package's
// testdata/fuzz, where go test runs it again.
//
// Targets are found in the source, so that a new one does not need to be registered. A
// test called TestFuzzX is also a target: it searches by itself for as long as
// FAIRLEAD_FUZZ_TIME says, and reports like go test.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzzrun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fuzzrun", flag.ExitOnError)
	budget := flags.Duration("time", time.Minute, "total time to fuzz, shared equally by all targets")
	only := flags.String("run", "", "run only targets whose \"package.Name\" matches this `regexp`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	packages := flags.Args()
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	targets, err := find(ctx, packages, wanted)
	if err != nil {
		return err
	}
	share := *budget / time.Duration(max(len(targets), 1))
	if len(targets) == 0 || share <= 0 {
		return fmt.Errorf("%d fuzz targets share %s: want at least one target and a positive share", len(targets), *budget)
	}
	fmt.Fprintf(out, "fuzz: %d targets, %s each\n", len(targets), share.Round(time.Millisecond))
	return fuzzAll(ctx, targets, share, out)
}

// fuzzAll continues after a failure, so that one run finds as much as it can.
func fuzzAll(ctx context.Context, targets []target, share time.Duration, out io.Writer) error {
	var total counts
	var failed []string
	start := time.Now()
	for i, t := range targets {
		fmt.Fprintf(out, "fuzz: [%d/%d] %s\n", i+1, len(targets), t)
		r := fuzz(ctx, t, share)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted during %s", t)
		}
		total.add(r.counts)
		verdict := "ok"
		if r.err != nil {
			verdict = "FAIL"
			failed = append(failed, t.String())
			fmt.Fprintf(out, "%s\n%v\n", strings.TrimRight(r.output, "\n"), r.err)
		}
		fmt.Fprintf(out, "%-4s %s: %s in %s\n", verdict, t, r.counts, r.took.Round(time.Millisecond))
	}
	fmt.Fprintf(out, "fuzz: %d targets, %d failed: %s in %s\n", len(targets), len(failed), total, time.Since(start).Round(time.Second))
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}
