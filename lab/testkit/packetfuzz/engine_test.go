package packetfuzz

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// locks is a target whose model is wrong after two frames that begin with certain bytes,
// without a wait between them.
type locks struct {
	coverage []byte
	features Features
	outcomes map[string]uint64
	open     bool
	worlds   []uint64
}

func newLocks() *locks { return &locks{coverage: make([]byte, 16), outcomes: map[string]uint64{}} }

func (l *locks) Name() string                { return "locks" }
func (l *locks) Hooks() []string             { return []string{"front", "back"} }
func (l *locks) MaxFrame() int               { return 100 }
func (l *locks) Enter(world uint64) error    { l.worlds = append(l.worlds, world); return nil }
func (l *locks) ChangeCost() int             { return 1 }
func (l *locks) Reset() error                { l.open = false; return nil }
func (l *locks) Finish() error               { return nil }
func (l *locks) Coverage() []byte            { return l.coverage }
func (l *locks) Features() *Features         { return &l.features }
func (l *locks) Blocks() []Block             { return make([]Block, 16) }
func (l *locks) Outcomes() map[string]uint64 { return l.outcomes }
func (l *locks) Next(rng *rand.Rand, s *Step) {
	s.Frame = append(s.Frame, make([]byte, 14+rng.IntN(40))...)
}

func (l *locks) Do(s *Step) error {
	l.outcomes["steps"]++
	if s.Kind != Packet {
		l.open = false
		return nil
	}
	l.coverage[15] = 1
	word := func(w string, first int) (n int) {
		for n < len(w) && 14+n < len(s.Frame) && s.Frame[14+n] == w[n] {
			l.coverage[first+n] = 1
			n++
		}
		return n
	}
	if word("\x06", 0) == 1 {
		l.open = true
	} else if l.open && word("\x2c\x3a", 8) == 2 {
		return Violated("it opens")
	}
	return nil
}

// safe is a target whose model is right.
type safe struct{ *locks }

func (s safe) Do(step *Step) error {
	_ = s.locks.Do(step)
	return nil
}

// Coverage finds what pure chance would not find in so few packets, and the failing case
// is reduced.
func TestFindsByCoverage(t *testing.T) {
	stats := NewStats("locks")
	l := newLocks()
	err := NewEngine(l, nil, stats).Run(t.Context(), Limits{Seed: 1, Packets: 50_000_000})
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatalf("nothing is found in %d packets: %v", stats.Packets, err)
	}
	if len(f.Case.Steps) != 2 || f.Case.Packets() != 2 || f.At.Packets == 0 {
		t.Errorf("after %d packets, not made short:\n%s", f.At.Packets, f.Case.Text(l.Hooks()))
	}
	if f.Case.World != l.worlds[len(l.worlds)-1] {
		t.Errorf("the case is of world %d, not of %v", f.Case.World, l.worlds)
	}
	for i, s := range f.Case.Steps {
		if most := 15 + i; len(s.Frame) != most {
			t.Errorf("a frame has %d bytes, of which %d matter", len(s.Frame), most)
		}
	}
	if _, err := Replay(l, []*Case{f.Case}); !errors.As(err, &f) {
		t.Errorf("the short case gives %v", err)
	}
}

// costly is a target whose steps sometimes are changes. It counts cases by what they contain.
type costly struct {
	*locks
	rarely, cost             int
	steps, changes           int
	cases, changed, shortest int
}

func (c *costly) Next(rng *rand.Rand, s *Step) {
	if s.Kind = Packet; c.rarely > 0 && rng.IntN(c.rarely) == 0 {
		s.Kind = Change
	}
}

func (c *costly) ChangeCost() int { return c.cost }

func (c *costly) Reset() error { c.steps, c.changes = 0, 0; return nil }

func (c *costly) Do(s *Step) error {
	c.steps++
	if s.Kind == Change {
		c.changes++
	}
	return nil
}

func (c *costly) Finish() error {
	c.cases++
	if c.changes > 0 {
		c.changed++
		c.shortest = min(c.shortest, c.steps)
	}
	return nil
}

// A case with a costly change is as long as a case may be.
func TestChangesAreUsed(t *testing.T) {
	for _, cost := range []int{1, 4} {
		c := &costly{locks: newLocks(), rarely: 50, cost: cost, shortest: MaxSteps + 1}
		if err := NewEngine(c, nil, NewStats("costly")).Run(t.Context(), Limits{Seed: 1, Packets: 100_000}); err != nil {
			t.Fatal(err)
		}
		if c.changed == 0 || (c.shortest < MaxSteps) != (cost == 1) {
			t.Errorf("cost %d: %d of %d cases have changes; the shortest has %d steps", cost, c.changed, c.cases, c.shortest)
		}
	}
}

// Cases of the corpus with costly changes are seldom run, whatever part of it they are.
func TestChangesAreRare(t *testing.T) {
	var corpus []*Case
	for i := range 100 {
		one := &Case{Steps: []Step{{}, {}}}
		if i%2 == 0 {
			one.Steps[0].Kind = Change
		}
		corpus = append(corpus, one)
	}
	for cost, want := range map[int]float64{1: 0.5, 16: 0.06} {
		c := &costly{locks: newLocks(), cost: cost}
		if err := NewEngine(c, corpus, NewStats("costly")).Run(t.Context(), Limits{Seed: 1, Packets: 1_000_000}); err != nil {
			t.Fatal(err)
		}
		// Half of the cases are new; a mutation may copy a change.
		if share := 2 * float64(c.changed) / float64(c.cases); share < want || share > 2*want {
			t.Errorf("cost %d: %d of %d cases have changes", cost, c.changed, c.cases)
		}
	}
}

// What an earlier engine has reached is not new, and its corpus is not run again.
func TestReachedStays(t *testing.T) {
	first := NewEngine(newLocks(), nil, NewStats("locks"))
	_ = first.Run(t.Context(), Limits{Seed: 1, Worlds: 3, WorldPackets: 5000})
	blocks, features, corpus := first.Covered()
	if blocks == 0 || len(corpus) == 0 {
		t.Fatalf("%d blocks, %d cases", blocks, len(corpus))
	}
	second := NewEngine(newLocks(), corpus, NewStats("locks"))
	second.Reached = first.Reached
	_ = second.Run(t.Context(), Limits{Seed: 1, Packets: 1})
	if b, f, c := second.Covered(); b != blocks || f != features || len(c) != len(corpus) {
		t.Errorf("%d blocks, %d features and %d cases became %d, %d and %d", blocks, features, len(corpus), b, f, len(c))
	}
}

// Every new bit is found, wherever it is, and cleared.
func TestNews(t *testing.T) {
	l := newLocks()
	l.coverage = make([]byte, 1000)
	e := NewEngine(l, nil, NewStats("locks"))
	rng := rand.New(rand.NewPCG(1, 2))
	known := map[int]bool{}
	for range 2000 {
		news := 0
		for range rng.IntN(4) {
			at := rng.IntN(len(l.coverage))
			if l.coverage[at] = 1; !known[at] {
				known[at] = true
				news++
			}
		}
		if found := e.news(); found != (news > 0) || e.blocks != len(known) {
			t.Fatalf("%d of %d blocks are new: %v, %d", news, len(known), found, e.blocks)
		}
		if slices.Max(l.coverage) > 0 {
			t.Fatal("it is not cleared")
		}
	}
}

// The same seed gives the same run.
func TestSeeds(t *testing.T) {
	run := func(seed uint64) (string, Stats) {
		l, stats := newLocks(), NewStats("locks")
		e := NewEngine(l, nil, stats)
		_ = e.Run(t.Context(), Limits{Seed: seed, Worlds: 3, WorldPackets: 5000})
		var all strings.Builder
		for _, c := range e.corpus {
			all.WriteString(c.Text(l.Hooks()))
		}
		return all.String(), *stats
	}
	a, first := run(7)
	b, second := run(7)
	c, _ := run(8)
	if a != b || first.Packets != second.Packets || a == c || first.Worlds != 3 {
		t.Errorf("%d and %d packets, corpora equal: %v; of another seed equal: %v", first.Packets, second.Packets, a == b, a == c)
	}
	if first.Outcomes["steps"] < first.Packets || first.Hooks["front"] != first.Packets || first.NextWorld != 10 {
		t.Errorf("stats: %+v", first)
	}
}

// The CPU time that a run takes limits and reports it, however coarse the kernel's clock is.
func TestLimitsProcessorTime(t *testing.T) {
	stats := NewStats("locks")
	limit := 30 * time.Millisecond
	err := NewEngine(safe{newLocks()}, nil, stats).Run(t.Context(), Limits{Seed: 1, Processor: limit})
	if err != nil || stats.Processor < limit {
		t.Errorf("error %v after %v of CPU time, want none after %v", err, stats.Processor, limit)
	}
}

func TestEndsWithContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := NewEngine(newLocks(), nil, NewStats("locks")).Run(ctx, Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func randomCase(rng *rand.Rand) *Case {
	c := &Case{World: rng.Uint64N(9)}
	for range rng.IntN(6) {
		s := c.Grow()
		switch rng.IntN(4) {
		case 0:
			s.Kind, s.Arg, s.Ticks = Wait, rng.Uint64(), rng.Uint32()
		case 1:
			s.Kind, s.Arg = Change, rng.Uint64()
		default:
			s.Hook, s.Arg = uint8(rng.IntN(2)), rng.Uint64N(3)
			for range rng.IntN(60) {
				s.Frame = append(s.Frame, byte(rng.Uint32()))
			}
		}
	}
	return c
}

func TestMutations(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		c, other := randomCase(rng), randomCase(rng)
		text := other.Text([]string{"a", "b"})
		mutate(rng, c, other, 100)
		if len(c.Steps) > MaxSteps {
			t.Fatalf("%d steps", len(c.Steps))
		}
		for _, s := range c.Steps {
			if len(s.Frame) > 100 {
				t.Fatalf("a frame has %d bytes", len(s.Frame))
			}
		}
		if other.Text([]string{"a", "b"}) != text {
			t.Fatal("the other case changed, too")
		}
	}
}

func TestCorpusIsKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []*Case
	for range 50 {
		if c := randomCase(rng); len(c.Steps) > 0 {
			all = append(all, c)
		}
	}
	path := filepath.Join(t.TempDir(), "some", "corpus.gz")
	hooks := []string{"a", "b"}
	if none, err := LoadCorpus(path, hooks); err != nil || none != nil {
		t.Errorf("%v, %v for a missing corpus", none, err)
	}
	if err := SaveCorpus(path, hooks, all); err != nil {
		t.Fatal(err)
	}
	got, err := LoadCorpus(path, hooks)
	if err != nil {
		t.Fatal(err)
	}
	text := func(all []*Case) (s string) {
		for _, c := range all {
			s += c.Text(hooks)
		}
		return s
	}
	if diff := cmp.Diff(text(all), text(got)); diff != "" {
		t.Errorf("read (-written +read):\n%s", diff)
	}
}

// A few cases reach what all reach.
func TestReduce(t *testing.T) {
	l := newLocks()
	frame := func(s string) Step { return Step{Frame: append(make([]byte, 14), s...)} }
	all := []*Case{
		{Steps: []Step{frame("\x06"), frame("xxxxxxxxxxxx")}}, {Steps: []Step{frame("\x06")}},
		{World: 1, Steps: []Step{frame("\x06"), frame("\x2c")}}, {World: 1, Steps: []Step{frame("x")}},
	}
	few, err := Reduce(l, all)
	if err != nil || len(few) != 2 || few[0] != all[1] || few[1] != all[2] {
		t.Errorf("%v, %v", few, err)
	}
	if blocks, err := Replay(l, few); blocks != 3 || err != nil {
		t.Errorf("%d blocks, %v", blocks, err)
	}
}

func TestStats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats.json")
	s, err := LoadStats(path, "locks")
	if err != nil || s.Target != "locks" {
		t.Fatalf("%+v, %v", s, err)
	}
	s.Packets, s.Hooks["front"], s.Commits["abc"] = 5, 4, 3
	if err := s.Save(path); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadStats(path, "locks"); err != nil || !cmp.Equal(got, s) {
		t.Errorf("%+v, %v, want %+v", got, err, s)
	}
}

// Expected finds wrong bytes and wrong sums, and accepts correct sums.
func TestExpected(t *testing.T) {
	frame := []byte{1, 2, 0, 0, 5, 6}
	var e Expected
	for _, c := range []struct {
		out  []byte
		want string
	}{
		{[]byte{1, 2, 0xf9, 0xf7, 5, 6}, ""},
		{[]byte{1, 2, 0xf9, 0xf8, 5, 6}, "the sum was 0xffff"},
		{[]byte{1, 3, 0xf9, 0xf7, 5, 6}, "byte 1 is 0x3"},
		{[]byte{1, 2, 0xf9, 0xf7, 5}, "got 5 bytes"},
	} {
		e.Begin(frame)
		e.KeepSum("test", 2, Right, 0, 6, 0)
		if err := e.Compare(c.out); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%x: %v, want %q", c.out, err, c.want)
		}
	}
	e.Begin(frame)
	e.KeepUDP("test", 2, 7, Right, 0, 6, binary.MaxVarintLen16)
	if err := e.Compare(frame); err == nil || !strings.Contains(err.Error(), "sum") && !strings.Contains(err.Error(), "it was removed") {
		t.Errorf("a removed checksum: %v", err)
	}
}

func FuzzParseCase(f *testing.F) {
	f.Add("world 3\npacket a 0 450000\nwait 5 1\nchange 7\n# a remark\n")
	f.Add("packet b 18446744073709551615 \n")
	hooks := []string{"a", "b"}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCase(text, hooks)
		if err != nil {
			return
		}
		again, err := ParseCase(c.Text(hooks), hooks)
		if err != nil || again.Text(hooks) != c.Text(hooks) {
			t.Fatalf("%v of\n%s", err, c.Text(hooks))
		}
		for i := range c.Steps {
			if !bytes.Equal(c.Steps[i].Frame, again.Steps[i].Frame) {
				t.Fatal(fmt.Sprint("step ", i, " differs"))
			}
		}
	})
}
