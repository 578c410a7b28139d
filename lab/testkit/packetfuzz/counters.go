package packetfuzz

import (
	"encoding/binary"
	"fmt"
)

// Counters is an array with a counter for each reason, accessed by the names of a C enum.
type Counters struct {
	memory []byte
	names  []string // by number; empty for those that are not compared
	before []uint64
}

// NewCounters returns the counters in a private map of an object; prefix is what all
// names begin with.
func NewCounters(o *Object, name, enum, prefix string) (*Counters, error) {
	names, err := EnumOf(o.Spec.Types, enum)
	if err != nil {
		return nil, err
	}
	m := o.Maps[name]
	c := &Counters{names: make([]string, m.MaxEntries()), before: make([]uint64, m.MaxEntries())}
	for n, name := range names {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix && n < uint64(len(c.names)) {
			c.names[n] = name[len(prefix):]
		}
	}
	if c.memory, err = Memory(m); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// Begin makes the current values the reference.
func (c *Counters) Begin() {
	for i := range c.before {
		c.before[i] = c.at(i)
	}
}

func (c *Counters) at(i int) uint64 { return binary.NativeEndian.Uint64(c.memory[8*i:]) }

// Compare returns an error if a counter has not changed since Begin as it should have.
func (c *Counters) Compare(want map[string]uint64) error {
	left := len(want)
	for i, name := range c.names {
		moved := c.at(i) - c.before[i]
		if moved == 0 && left == 0 || name == "" {
			continue
		}
		n, ok := want[name]
		if ok {
			left--
		}
		if moved != n {
			return Violated("%s is counted %d times, not %d", name, moved, n)
		}
	}
	if left > 0 {
		return fmt.Errorf("the programs do not have all the counters %v", want)
	}
	return nil
}

// Moved returns all counters that have changed, for messages.
func (c *Counters) Moved() map[string]uint64 {
	all := map[string]uint64{}
	for i, name := range c.names {
		if n := c.at(i) - c.before[i]; n != 0 {
			all[name] = n
		}
	}
	return all
}
