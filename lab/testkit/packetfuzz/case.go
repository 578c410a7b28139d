package packetfuzz

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a step does.
type Kind uint8

// The kinds of steps.
const (
	Packet Kind = iota // a frame arrives
	Wait               // time passes
	Change             // the agent changes the programs' configuration
)

// Step is one step of a case.
type Step struct {
	Kind Kind
	// Hook is where a frame arrives: the number of one of the target's hooks.
	Hook uint8
	// Arg is a target-specific value of a frame, the nanoseconds of a wait, or the number
	// of a change.
	Arg uint64
	// Ticks are the kernel clock ticks that pass in a wait.
	Ticks uint32
	Frame []byte
}

// Case is a sequence of steps that always starts from the same state, in one of a
// target's worlds.
type Case struct {
	World uint64
	Steps []Step
}

// MaxSteps is the maximum length of a case.
const MaxSteps = 48

// Clone returns a copy that shares no memory.
func (c *Case) Clone() *Case {
	d := &Case{World: c.World, Steps: slices.Clone(c.Steps)}
	for i := range d.Steps {
		d.Steps[i].Frame = bytes.Clone(d.Steps[i].Frame)
	}
	return d
}

// Set makes c equal to another case, in c's own memory.
func (c *Case) Set(from *Case) {
	c.World = from.World
	c.Steps = c.Steps[:0]
	for i := range from.Steps {
		s := c.Grow()
		frame := append(s.Frame, from.Steps[i].Frame...)
		*s = from.Steps[i]
		s.Frame = frame
	}
}

// Grow appends an empty step, whose frame reuses the memory of an earlier one.
func (c *Case) Grow() *Step {
	if n := len(c.Steps); n < cap(c.Steps) {
		c.Steps = c.Steps[:n+1]
		s := &c.Steps[n]
		*s = Step{Frame: s.Frame[:0]}
		return s
	}
	c.Steps = append(c.Steps, Step{Frame: make([]byte, 0, 256)})
	return &c.Steps[len(c.Steps)-1]
}

func (c *Case) hasChange() bool {
	for i := range c.Steps {
		if c.Steps[i].Kind == Change {
			return true
		}
	}
	return false
}

// Packets counts the frames.
func (c *Case) Packets() (n int) {
	for i := range c.Steps {
		if c.Steps[i].Kind == Packet {
			n++
		}
	}
	return n
}

// Text formats a case for people and for ParseCase:
//
//	world 3
//	packet eth0 0 45000028...
//	wait 1000000000 4
//	change 17
func (c *Case) Text(hooks []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "world %d\n", c.World)
	for _, s := range c.Steps {
		switch s.Kind {
		case Packet:
			fmt.Fprintf(&b, "packet %s %d %x\n", hooks[s.Hook], s.Arg, s.Frame)
		case Wait:
			fmt.Fprintf(&b, "wait %d %d\n", s.Arg, s.Ticks)
		case Change:
			fmt.Fprintf(&b, "change %d\n", s.Arg)
		}
	}
	return b.String()
}

// ParseCase parses the output of Text. Empty lines and those that begin with # are
// skipped.
func ParseCase(text string, hooks []string) (*Case, error) {
	c := &Case{}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := c.parseLine(strings.Fields(line), hooks); err != nil {
			return nil, fmt.Errorf("line %d, %.40q: %w", n, line, err)
		}
	}
	return c, lines.Err()
}

func (c *Case) parseLine(words []string, hooks []string) (err error) {
	number := func(i int) (n uint64) {
		if i >= len(words) {
			err = fmt.Errorf("want %d words", i+1)
		} else if v, bad := strconv.ParseUint(words[i], 10, 64); bad != nil {
			err = bad
		} else {
			n = v
		}
		return n
	}
	switch words[0] {
	case "world":
		c.World = number(1)
	case "wait":
		c.Steps = append(c.Steps, Step{Kind: Wait, Arg: number(1), Ticks: uint32(number(2))})
	case "change":
		c.Steps = append(c.Steps, Step{Kind: Change, Arg: number(1)})
	case "packet":
		if len(words) == 3 {
			words = append(words, "") // an empty frame
		}
		if len(words) != 4 {
			return fmt.Errorf("want packet HOOK NOTE BYTES")
		}
		hook := slices.Index(hooks, words[1])
		if hook < 0 {
			return fmt.Errorf("no hook %s: want one of %v", words[1], hooks)
		}
		frame, bad := hex.DecodeString(words[3])
		if bad != nil {
			return bad
		}
		c.Steps = append(c.Steps, Step{Kind: Packet, Hook: uint8(hook), Arg: number(2), Frame: frame})
	default:
		return fmt.Errorf("unknown step: want packet, wait, change or world")
	}
	return err
}
