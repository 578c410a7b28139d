package backendlist

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Lists come back as they are.
func TestWords(t *testing.T) {
	b := func(weight, conns uint32, since uint64, held uint8) bpf.BalancerMember {
		return bpf.BalancerMember{Weight: weight, MaxConns: conns, Since: since, Held: held}
	}
	for words, entries := range map[int][]Entry{
		0: nil,
		3: {{1, b(0, 0, 0, 0)}},
		5: {{7, b(1, 2, 3, 1)}, {1<<32 - 1, b(1, 2, 3, 0)}, {9, b(1, 2, 3, 1)}},
		9: {{7, b(1<<32-1, 2, 3, 1)}, {8, b(1<<32-1, 0, 3, 1)}, {9, b(1<<32-1, 0, 1<<64-1, 1)}},
	} {
		list := appendWords(nil, entries)
		if got := parse(list); len(list) != words || !slices.Equal(got, entries) || length(list) != len(entries) {
			t.Errorf("%v: %d words, and back %v", entries, len(list), got)
		}
	}
}
