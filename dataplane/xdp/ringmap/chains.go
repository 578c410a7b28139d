package ringmap

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// chainOwners are the servers of a chain, in order, with zeros at the end.
type chainOwners = [ring.Depth]ring.ID

// chainTable stores each chain once, regardless of the number of slots that use it. If it
// is full, slots get shorter chains, or none.
type chainTable struct {
	numbers alloc.Pool
	byOwner map[chainOwners]uint32
	owners  []chainOwners // by number
	slots   []uint32      // number of slots that use it, by number
	// lacking counts the slots whose chain was shortened since the table was last
	// read.
	lacking int
}

// newChainTable returns an empty table with numbers from 1 to max.
func newChainTable(max uint32, rouse func() error) chainTable {
	return chainTable{
		numbers: alloc.NewPool("chains (MaxChains)", 1, max+1, rouse),
		byOwner: map[chainOwners]uint32{},
		owners:  make([]chainOwners, max+1),
		slots:   make([]uint32, max+1),
	}
}

// take returns the number of a chain for one more slot. A chain that is to be written is
// added to fresh.
func (t *chainTable) take(owners chainOwners, fresh *[]uint32) uint32 {
	for shorter := owners; shorter[0] != 0; shorter = cut(shorter) {
		if n, ok := t.number(shorter, fresh); ok {
			t.slots[n]++
			if shorter != owners {
				t.lacking++
			}
			return n
		}
	}
	if owners[0] != 0 {
		t.lacking++
	}
	return 0
}

// cut removes the oldest owner.
func cut(owners chainOwners) chainOwners {
	for i := len(owners) - 1; i >= 0; i-- {
		if owners[i] != 0 {
			owners[i] = 0
			break
		}
	}
	return owners
}

func (t *chainTable) number(owners chainOwners, fresh *[]uint32) (uint32, bool) {
	if n, ok := t.byOwner[owners]; ok {
		return n, true
	}
	n, err := t.numbers.Take()
	if err != nil {
		return 0, false
	}
	t.byOwner[owners], t.owners[n] = n, owners
	*fresh = append(*fresh, n)
	return n, true
}

// release records that a slot no longer uses a chain.
func (t *chainTable) release(n uint32) {
	if n == 0 || int(n) >= len(t.slots) || t.slots[n] == 0 {
		return
	}
	if t.slots[n]--; t.slots[n] == 0 {
		if t.byOwner[t.owners[n]] == n {
			delete(t.byOwner, t.owners[n])
		}
		t.numbers.GiveBack(n)
	}
}

// learn records a slot that already uses a chain, and reports whether it is the first.
func (t *chainTable) learn(n uint32) bool {
	if n == 0 || int(n) >= len(t.slots) {
		return false
	}
	t.slots[n]++
	return t.slots[n] == 1
}

// know sets the owners of a chain found by learn.
func (t *chainTable) know(n uint32, owners chainOwners) {
	t.numbers.Mark(n)
	t.owners[n] = owners
	if _, twice := t.byOwner[owners]; !twice {
		t.byOwner[owners] = n
	}
}

// of returns the owners of a slot's chain.
func (t *chainTable) of(n uint32) chainOwners {
	if int(n) >= len(t.owners) || t.slots[n] == 0 {
		return chainOwners{}
	}
	return t.owners[n]
}

// whole returns a function that reports whether a chain contains only members. It
// evaluates each chain once.
func (t *chainTable) whole(member func(ring.ID) bool) func(n uint32) bool {
	const yes, no = 1, 2
	answers := make([]uint8, len(t.owners))
	return func(n uint32) bool {
		if n == 0 {
			return true
		}
		if int(n) >= len(answers) {
			return false
		}
		if answers[n] == 0 {
			gone := slices.ContainsFunc(t.owners[n][:], func(id ring.ID) bool { return id != 0 && !member(id) })
			if answers[n] = yes; gone {
				answers[n] = no
			}
		}
		return answers[n] == yes
	}
}

// write writes chains to the kernel's table. addr returns the address of a server.
func (t *chainTable) write(m *ebpf.Map, fresh []uint32, addr func(ring.ID) netip.AddrPort) error {
	if len(fresh) == 0 {
		return nil
	}
	values := make([]bpf.BalancerChain, len(fresh))
	for i, n := range fresh {
		values[i] = entry.Chain(endpoints(t.owners[n], addr))
	}
	if _, err := m.BatchUpdate(fresh, values, nil); err != nil {
		return fmt.Errorf("write chains: %w", err)
	}
	return nil
}

// endpoints returns the addresses of a chain's owners.
func endpoints(owners chainOwners, addr func(ring.ID) netip.AddrPort) (all []netip.AddrPort) {
	for _, id := range owners {
		if id == 0 {
			break
		}
		all = append(all, addr(id))
	}
	return all
}
