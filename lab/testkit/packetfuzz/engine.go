package packetfuzz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
	"unsafe"

	"github.com/fairlead/fairlead/lab/cputime"
)

// Target is a set of programs with their environment and a model of what they must do.
// Its methods are called from one goroutine, on one thread.
type Target interface {
	// Name is one word, the name of the target's package.
	Name() string
	// Hooks are the names of the places where frames arrive; a step has the index.
	Hooks() []string
	// MaxFrame is the longest frame that the hooks accept.
	MaxFrame() int
	// Enter configures the programs at random, always in the same way for the same world.
	Enter(world uint64) error
	// Reset brings programs and model to the initial state of every case.
	Reset() error
	// ChangeCost is about how many cases without a change take as long as one with a
	// change.
	ChangeCost() int
	// Next writes a step that could plausibly follow those of this case.
	Next(rng *rand.Rand, s *Step)
	// Do runs a step on the programs and on the model. A difference is a Violation.
	Do(s *Step) error
	// Finish compares the state of both. A difference is a Violation.
	Finish() error
	// Coverage is where the programs record what has run. The engine clears it.
	Coverage() []byte
	// Features are what the model saw in addition: states for which programs have no
	// branch. The engine clears them.
	Features() *Features
	// Blocks are the blocks that Coverage's bytes stand for.
	Blocks() []Block
	// Outcomes counts the outcomes of packets, by the target's own names. The engine adds
	// them to the stats and clears them.
	Outcomes() map[string]uint64
}

// Violation is what a program did and should not have.
type Violation struct{ What string }

func (v *Violation) Error() string { return v.What }

// Violated makes a Violation.
func Violated(format string, args ...any) error { return &Violation{fmt.Sprintf(format, args...)} }

// Features are a set of small numbers.
type Features [1 << 13]byte

// Saw adds a number, of any size, by its hash.
func (f *Features) Saw(n uint64) {
	n *= 0x9e3779b97f4a7c15
	n >>= 64 - 16
	f[n>>3] |= 1 << (n & 7)
}

// Engine searches a target's cases for violations. Cases that reach something new are
// kept and mutated.
type Engine struct {
	target  Target
	rng     *rand.Rand
	work    Case
	world   uint64
	corpus  []*Case
	fresh   []novelty
	stats   *Stats
	hooks   []uint64 // packets since settled
	settled time.Time
	used    time.Duration // CPU time at settled
	Reached
}

// Reached is what an engine's cases have reached.
type Reached struct {
	covered  []byte
	features Features
	// blocks and marks are the numbers of covered blocks and features.
	blocks, marks int
}

// NewEngine returns an engine that starts with a corpus, which may be empty, and adds to
// stats.
func NewEngine(t Target, corpus []*Case, stats *Stats) *Engine {
	return &Engine{target: t, corpus: corpus, Reached: Reached{covered: make([]byte, len(t.Coverage()))}, stats: stats, hooks: make([]uint64, len(t.Hooks()))}
}

// Limits define when an engine ends. Zero means no limit.
type Limits struct {
	Packets uint64
	Time    time.Duration
	// Processor is the CPU time of the search thread.
	Processor time.Duration
	// Worlds and Seed are for reproducible tests: the number of worlds, from world 1 on.
	Worlds uint64
	Seed   uint64
	// WorldTime is the minimum duration of a world.
	WorldTime time.Duration
	// WorldPackets sets it in packets, independent of the machine's speed.
	WorldPackets uint64
	// AfterWorld is called occasionally, when no case is running.
	AfterWorld func() error
}

// Failure is a case that violates the model, as short as possible.
type Failure struct {
	Case *Case
	Why  error
	// At is the state of the stats when it was found.
	At Stats
}

func (f *Failure) Error() string { return f.Why.Error() }

func (f *Failure) Unwrap() error { return f.Why }

// Run searches until a limit is reached (nil), the context ends, or an error occurs: a
// *Failure for a violation.
func (e *Engine) Run(ctx context.Context, l Limits) error {
	begin, started := time.Now(), cputime.Thread()
	e.settled, e.used = begin, started
	defer e.settle()
	last := e.stats.Packets + l.Packets
	for n := uint64(0); l.Worlds == 0 || n < l.Worlds; n++ {
		w := world{number: l.Seed + n, begin: time.Now()}
		if err := e.target.Enter(w.number); err != nil {
			return fmt.Errorf("world %d: %w", w.number, err)
		}
		w.setup = time.Since(w.begin)
		e.world, e.stats.NextWorld = w.number, w.number+1
		e.rng = rand.New(rand.NewPCG(l.Seed, w.number))
		e.stats.Worlds++
		if n == 0 && e.blocks == 0 {
			if err := e.replay(); err != nil {
				return e.failed(w.number, err)
			}
		}
		for done, over := uint64(0), false; !over; over = e.stats.Cases%256 == 0 && w.over(l, done) {
			before := e.stats.Packets
			if err := e.one(); err != nil {
				return e.failed(w.number, err)
			}
			done += e.stats.Packets - before
			if e.stats.Cases%256 != 0 && (l.Packets == 0 || e.stats.Packets < last) && (l.WorldPackets == 0 || done < l.WorldPackets) {
				continue // reading the clock costs as much as a packet
			}
			if ctx.Err() != nil || l.Packets > 0 && e.stats.Packets >= last || l.Time > 0 && time.Since(begin) >= l.Time ||
				l.Processor > 0 && cputime.Thread()-started >= l.Processor {
				return ctx.Err()
			}
		}
		if l.AfterWorld != nil {
			e.settle()
			if err := l.AfterWorld(); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle brings the stats up to date.
func (e *Engine) settle() {
	now, used := time.Now(), cputime.Thread()
	e.stats.Elapsed += now.Sub(e.settled)
	e.stats.Processor += used - e.used
	e.settled, e.used = now, used
	for i, name := range e.target.Hooks() {
		e.stats.Hooks[name] += e.hooks[i]
		e.hooks[i] = 0
	}
	outcomes := e.target.Outcomes()
	for name, n := range outcomes {
		e.stats.Outcomes[name] += n
	}
	clear(outcomes)
	e.stats.Blocks, e.stats.AllBlocks = max(e.stats.Blocks, e.blocks), len(e.target.Blocks())
	e.stats.Features, e.stats.Corpus = max(e.stats.Features, e.marks), len(e.corpus)
}

// world measures the duration of a world.
type world struct {
	number uint64
	begin  time.Time
	setup  time.Duration
}

// over reports whether it is time for another world. Setting one up should take a small
// part of the time.
func (w *world) over(l Limits, done uint64) bool {
	if l.WorldPackets > 0 {
		return done >= l.WorldPackets
	}
	return time.Since(w.begin) > max(l.WorldTime, 3*time.Second, 20*w.setup)
}

// failed reduces the case of a violation.
func (e *Engine) failed(world uint64, why error) error {
	var v *Violation
	if !errors.As(why, &v) {
		return fmt.Errorf("world %d: %w", world, why)
	}
	c := e.work.Clone()
	c.World = world
	e.settle()
	at := *e.stats
	f := e.Minimise(c, why)
	f.At = at
	return f
}

// one creates and runs one case.
func (e *Engine) one() error {
	e.stats.Cases++
	generated := len(e.corpus) == 0 || e.rng.IntN(2) == 0
	var err error
	if generated {
		err = e.generate()
	} else {
		err = e.vary()
	}
	if err == nil && e.news() {
		return e.keep()
	}
	return err
}

// keep adds the current case, which has reached something new, to the corpus, without the
// steps that are not needed for that: mutations of a short case hit the relevant steps.
func (e *Engine) keep() error {
	c, fresh := e.work.Clone(), slices.Clone(e.fresh)
	c.World = e.world
	for n := max(len(c.Steps)/2, 1); n > 0; n /= 2 {
		for i := len(c.Steps) - n; i >= 0 && len(c.Steps) > n; i -= n {
			e.work.Set(c)
			e.work.Steps = slices.Delete(e.work.Steps, i, min(i+n, len(c.Steps)))
			if err := e.execute(); err != nil {
				return err
			}
			reached := !slices.ContainsFunc(fresh, func(f novelty) bool { return !f.reached(e.target) })
			if e.news(); reached {
				c.Steps = slices.Delete(c.Steps, i, min(i+n, len(c.Steps)))
			}
		}
	}
	e.corpus = append(e.corpus, c)
	return nil
}

// replay runs the cases of the corpus, for their coverage in this world.
func (e *Engine) replay() error {
	for _, c := range e.corpus {
		e.work.Set(c)
		if err := e.execute(); err != nil {
			return err
		}
		e.news()
	}
	return nil
}

// generate creates a case from the target's own steps, one after the other.
func (e *Engine) generate() error {
	e.work.Steps = e.work.Steps[:0]
	if err := e.target.Reset(); err != nil {
		return err
	}
	return e.extend(2 + e.rng.IntN(24))
}

// extend runs n generated steps at the end of a case, or as many as a case may have if it
// contains a change that costs more than they do.
func (e *Engine) extend(n int) error {
	costly := e.target.ChangeCost() > 1
	for ; n > 0 || costly && len(e.work.Steps) < MaxSteps && e.work.hasChange(); n-- {
		s := e.work.Grow()
		e.target.Next(e.rng, s)
		if err := e.do(s); err != nil {
			return err
		}
	}
	return e.target.Finish()
}

// pick returns a case of the corpus, and one with changes as seldom as these cost.
func (e *Engine) pick() *Case {
	cost := e.target.ChangeCost()
	c := e.corpus[e.rng.IntN(len(e.corpus))]
	for cost > 1 && c.hasChange() && e.rng.IntN(cost) > 0 {
		c = e.corpus[e.rng.IntN(len(e.corpus))]
	}
	return c
}

// vary runs a mutated case of the corpus, followed by some generated steps.
func (e *Engine) vary() error {
	e.work.Set(e.pick())
	if e.rng.IntN(8) > 0 {
		mutate(e.rng, &e.work, e.pick(), e.target.MaxFrame())
	}
	if err := e.target.Reset(); err != nil {
		return err
	}
	for i := range e.work.Steps {
		if err := e.do(&e.work.Steps[i]); err != nil {
			e.work.Steps = e.work.Steps[:i+1]
			return err
		}
	}
	return e.extend(e.rng.IntN(4))
}

// execute runs the steps of e.work.
func (e *Engine) execute() error {
	if err := e.target.Reset(); err != nil {
		return err
	}
	for i := range e.work.Steps {
		if err := e.do(&e.work.Steps[i]); err != nil {
			return err
		}
	}
	return e.target.Finish()
}

func (e *Engine) do(s *Step) error {
	if s.Kind == Packet {
		e.stats.Packets++
		e.hooks[int(s.Hook)%len(e.hooks)]++
	}
	return e.target.Do(s)
}

// Execute runs one case in its world, and returns the violation, if any.
func (e *Engine) Execute(c *Case) error {
	if err := e.target.Enter(c.World); err != nil {
		return err
	}
	e.work.Set(c)
	return e.execute()
}

// news reports whether the last case reached something for the first time, which it
// stores in e.fresh, and clears the records of it.
func (e *Engine) news() bool {
	e.fresh = e.fresh[:0]
	e.merge(e.covered, e.target.Coverage(), false, &e.blocks)
	e.merge(e.features[:], e.target.Features()[:], true, &e.marks)
	return len(e.fresh) > 0
}

// novelty is something that was reached for the first time: bits of a word of the
// coverage or the features.
type novelty struct {
	isFeature bool
	at        int
	bits      uint64
}

func (f novelty) reached(t Target) bool {
	all := t.Coverage()
	if f.isFeature {
		all = t.Features()[:]
	}
	return binary.NativeEndian.Uint64(all[f.at:])&f.bits == f.bits
}

// merge adds one set of bytes to another, counts what is new, and clears it.
func (e *Engine) merge(to, from []byte, isFeature bool, count *int) {
	for at := 0; at+8 <= len(from); at += 8 {
		at = skipZeros(from, at)
		w := binary.NativeEndian.Uint64(from[at:])
		if w == 0 {
			continue
		}
		was := binary.NativeEndian.Uint64(to[at:])
		if bits := w &^ was; bits != 0 {
			e.fresh = append(e.fresh, novelty{isFeature, at, bits})
			*count += ones(bits)
			binary.NativeEndian.PutUint64(to[at:], was|w)
		}
		binary.NativeEndian.PutUint64(from[at:], 0)
	}
}

// skipZeros returns the offset of the next word that is not zero, or that of a last one.
func skipZeros(b []byte, at int) int {
	for ; at+40 <= len(b); at += 32 {
		s := (*[4]uint64)(unsafe.Pointer(&b[at]))
		if s[0]|s[1]|s[2]|s[3] != 0 {
			break
		}
	}
	return at
}

// Covered returns how many blocks of the programs and features of the model have been
// reached, and the current corpus.
func (e *Engine) Covered() (blocks, features int, corpus []*Case) {
	return e.blocks, e.marks, e.corpus
}

// Uncovered lists the blocks that have not been reached, for people.
func (e *Engine) Uncovered() string { return uncovered(e.target.Blocks(), e.covered) }
