// Package seeded contains plausible mistakes in the programs of bpf, to measure how long
// the packet fuzzer takes to find each. A bug is a substitution in a copy of the source,
// which is compiled like the real program; it is never part of the product.
package seeded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/targets"
)

// Bug is a mistake in one place.
type Bug struct {
	Name   string
	Target string // in packetfuzz/targets
	File   string // relative to bpf
	What   string // the effect
	// Old occurs once, and is replaced with New.
	Old, New string
}

// Source returns the file with the bug.
func (b *Bug) Source(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "bpf", b.File))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), b.Old); n != 1 {
		return "", fmt.Errorf("%s: bpf/%s contains the text to replace %d times, want once: update the bug", b.Name, b.File, n)
	}
	return strings.Replace(string(text), b.Old, b.New, 1), nil
}

// Build compiles the bug's program in a folder and returns the object.
func (b *Bug) Build(ctx context.Context, dir string) (object string, err error) {
	root := targets.Root
	entry, err := targets.ByName(b.Target)
	if err != nil {
		return "", err
	}
	source, err := b.Source(root)
	if err != nil {
		return "", err
	}
	bpf := filepath.Join(dir, "bpf")
	if err := os.CopyFS(bpf, os.DirFS(filepath.Join(root, "bpf"))); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(bpf, b.File), []byte(source), 0o644); err != nil {
		return "", err
	}
	clang := cmp.Or(os.Getenv("BPF_CLANG"), "clang-19")
	object = filepath.Join(dir, b.Name+".o")
	cmd := exec.CommandContext(ctx, clang, "-target", "bpfel", "-O2", "-g", "-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused",
		"-I"+filepath.Join(bpf, "include"), "-I"+bpf, "-I/usr/include/x86_64-linux-gnu", "-I/usr/include/aarch64-linux-gnu",
		"-c", filepath.Join(dir, entry.Source), "-o", object)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %s: %w\n%s", b.Name, clang, err, out)
	}
	return object, nil
}

// Result describes how a bug was found.
type Result struct {
	Bug     Bug
	Found   bool
	Why     string        // the violation
	Steps   int           // of the reduced case
	Packets uint64        // until then
	Worlds  uint64        // that were set up
	CPU     time.Duration // of the fuzzing thread, including worlds and corpus
	Clock   time.Duration
}

// Hunt fuzzes a bug's program until the bug is found or the limit of CPU time is reached.
// The caller has its own thread (packetfuzz.OneCPU).
func Hunt(ctx context.Context, b Bug, limit time.Duration, seed uint64) (r Result, err error) {
	r.Bug = b
	dir, err := os.MkdirTemp("", "seeded-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	object, err := b.Build(ctx, dir)
	if err != nil {
		return r, err
	}
	entry, err := targets.ByName(b.Target)
	if err != nil {
		return r, err
	}
	target, err := entry.Open(object)
	if err != nil {
		return r, fmt.Errorf("%s: %w", b.Name, err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	corpus, err := packetfuzz.LoadCorpus(entry.Corpus(), target.Hooks())
	if err != nil {
		return r, err
	}
	stats := packetfuzz.NewStats(b.Target)
	engine := packetfuzz.NewEngine(target, corpus, stats)
	err = engine.Run(ctx, packetfuzz.Limits{Seed: seed, Processor: limit})
	r.Packets, r.Worlds, r.CPU, r.Clock = stats.Packets, stats.Worlds, stats.Processor, stats.Elapsed
	var f *packetfuzz.Failure
	if errors.As(err, &f) {
		r.Found, r.Why, r.Steps = true, f.Error(), len(f.Case.Steps)
		r.Packets, r.CPU, r.Clock = f.At.Packets, f.At.Processor, f.At.Elapsed
		return r, nil
	}
	return r, err
}
