package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/targets"
)

// session is one run of the command.
type session struct {
	targets       []targets.Entry
	time, slice   time.Duration
	packets, seed uint64
	dir, commit   string
	resume        bool
	corpus        bool
	cpu           int
	stats         map[string]*packetfuzz.Stats
	corpora       map[string][]*packetfuzz.Case
	reached       map[string]packetfuzz.Reached
}

func (r *session) run(ctx context.Context) error {
	r.stats, r.corpora, r.reached = map[string]*packetfuzz.Stats{}, map[string][]*packetfuzz.Case{}, map[string]packetfuzz.Reached{}
	if r.time > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, r.time)
		defer stop()
	}
	for {
		for _, e := range r.targets {
			done := make(chan error)
			go func() { done <- r.turn(ctx, e) }() // its thread ends with it
			if err := <-done; err != nil {
				return err
			}
			if ctx.Err() != nil || r.packets > 0 && r.sum() >= r.packets {
				return r.end()
			}
		}
	}
}

// sum returns the packets of all targets.
func (r *session) sum() (n uint64) {
	for _, s := range r.stats {
		n += s.Packets
	}
	return n
}

func (r *session) file(e targets.Entry, what string) string {
	return filepath.Join(r.dir, e.Name+"."+what)
}

// turn fuzzes one target for a slice of time.
func (r *session) turn(ctx context.Context, e targets.Entry) (err error) {
	if _, err := packetfuzz.OneCPU(r.cpu); err != nil {
		return err
	}
	target, err := e.Open(filepath.Join(targets.Root, e.Object))
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	stats, err := r.statsOf(e, target)
	if err != nil {
		return err
	}
	engine := packetfuzz.NewEngine(target, r.corpora[e.Name], stats)
	if earlier, ok := r.reached[e.Name]; ok {
		engine.Reached = earlier // its cases are not new again
	}
	begin, before, earlier := time.Now(), stats.Packets, stats.Commits[r.commit]
	save := func() error {
		stats.Commits[r.commit] = earlier + stats.Packets - before
		return stats.Save(r.file(e, "json"))
	}
	l := packetfuzz.Limits{Seed: stats.NextWorld, Time: r.slice, AfterWorld: save}
	if r.packets > 0 {
		l.Packets = max(1, r.packets-min(r.packets, r.sum()))
	}
	err = engine.Run(ctx, l)
	_, _, r.corpora[e.Name] = engine.Covered()
	r.reached[e.Name] = engine.Reached
	n := stats.Packets - before
	fmt.Printf("%s %-8s %d packets, %.0f a second, %d in all; %d of %d blocks, %d features, %d cases kept\n", time.Now().Format(time.DateTime),
		e.Name, n, float64(n)/time.Since(begin).Seconds(), r.sum(), stats.Blocks, stats.AllBlocks, stats.Features, stats.Corpus)
	var f *packetfuzz.Failure
	if errors.As(err, &f) {
		path, bad := e.Keep(f, target.Hooks())
		fmt.Printf("%v\n%s(%s)\n", f, f.Case.Text(target.Hooks()), path)
		stats.Violations = append(stats.Violations, filepath.Base(path))
		err = errors.Join(fmt.Errorf("%s: a violation", e.Name), bad)
	} else if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, save(), os.WriteFile(r.file(e, "uncovered"), []byte(engine.Uncovered()), 0o644),
		packetfuzz.SaveCorpus(r.file(e, "corpus.gz"), target.Hooks(), r.corpora[e.Name]))
}

// statsOf returns the stats of a target, in its first turn from the files of an earlier
// session if that is resumed.
func (r *session) statsOf(e targets.Entry, target targets.Target) (s *packetfuzz.Stats, err error) {
	if s := r.stats[e.Name]; s != nil {
		return s, nil
	}
	s = packetfuzz.NewStats(e.Name)
	s.NextWorld = r.seed
	corpus := e.Corpus()
	if r.resume {
		if s, err = packetfuzz.LoadStats(r.file(e, "json"), e.Name); err != nil {
			return nil, err
		}
		s.NextWorld = max(s.NextWorld, r.seed)
		if _, err := os.Stat(r.file(e, "corpus.gz")); err == nil {
			corpus = r.file(e, "corpus.gz")
		}
	}
	r.stats[e.Name] = s
	r.corpora[e.Name], err = packetfuzz.LoadCorpus(corpus, target.Hooks())
	return s, err
}

// end writes the tests' corpora, if requested.
func (r *session) end() error {
	if !r.corpus {
		return nil
	}
	for _, e := range r.targets {
		done := make(chan error)
		go func() { done <- r.reduce(e) }()
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

func (r *session) reduce(e targets.Entry) (err error) {
	if _, err := packetfuzz.OneCPU(r.cpu); err != nil {
		return err
	}
	target, err := e.Open(filepath.Join(targets.Root, e.Object))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	few, err := packetfuzz.Reduce(target, r.corpora[e.Name])
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d of %d cases\n", e.Name, len(few), len(r.corpora[e.Name]))
	return packetfuzz.SaveCorpus(e.Corpus(), target.Hooks(), few)
}
