package addresspool

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead/fairlead/core/service"
)

// twin is a reference allocator that tries every address, and records only each Service's
// addresses and the request that led to them.
type twin struct {
	pools []Pool // by preference
	nodes map[netip.Addr]string
	has   map[service.ID][]netip.Addr
	by    map[service.ID]Request
	// leaves holds the addresses that may still be published for each Service.
	leaves map[service.ID][]netip.Addr
}

func (t *twin) setPools(pools []Pool) (refused []string) {
	t.pools = nil
	for _, p := range pools {
		overlaps := slices.ContainsFunc(t.pools, func(o Pool) bool {
			return slices.ContainsFunc(everyAddr, func(a netip.Addr) bool { return within(a, p.Addresses) && within(a, o.Addresses) })
		})
		if overlaps {
			refused = append(refused, p.Name)
		} else {
			t.pools = append(t.pools, p)
		}
	}
	slices.SortFunc(t.pools, func(a, b Pool) int {
		if a.Priority != b.Priority {
			return int(b.Priority) - int(a.Priority)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return refused
}

// left reports whether a Service other than id is leaving an address.
func (t *twin) left(a netip.Addr, id service.ID) bool {
	for o, addrs := range t.leaves {
		if o != id && slices.Contains(addrs, a) {
			return true
		}
	}
	return false
}

// taken reports whether a Service other than id has an address.
func (t *twin) taken(a netip.Addr, id service.ID) bool {
	for o, addrs := range t.has {
		if o != id && slices.Contains(addrs, a) {
			return true
		}
	}
	return false
}

func within(a netip.Addr, ranges []Range) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.Contains(a) })
}

func (t *twin) usable(p Pool, a netip.Addr) bool {
	buggy := a.Is4() && p.AvoidBuggy && (a.As4()[3] == 0 || a.As4()[3] == 255)
	return within(a, p.Addresses) && !within(a, p.Reserved) && !buggy && t.nodes[a] == ""
}

func (t *twin) poolOf(a netip.Addr) *Pool {
	for i := range t.pools {
		if t.usable(t.pools[i], a) {
			return &t.pools[i]
		}
	}
	return nil
}

// others reports whether other Services have an address under a different key or none, or
// use one of the ports.
func (t *twin) others(id service.ID, a netip.Addr, r Request) (foreign, clash bool) {
	for o, addrs := range t.has {
		if o == id || !slices.Contains(addrs, a) {
			continue
		}
		foreign = foreign || r.SharingKey == "" || t.by[o].SharingKey != r.SharingKey
		for _, p := range r.Ports {
			clash = clash || slices.ContainsFunc(t.by[o].Ports, func(q Port) bool {
				return (p.Protocol == 0 || q.Protocol == 0 || p.Protocol == q.Protocol) && p.First <= q.Last && q.First <= p.Last
			})
		}
	}
	return foreign, clash
}

func (t *twin) assign(id service.ID, r Request) (missing []Reason) {
	had := t.has[id]
	if had == nil {
		had = r.Current
	}
	t.leaves[id] = slices.Concat(t.leaves[id], had)
	had = slices.DeleteFunc(slices.Clone(had), func(a netip.Addr) bool {
		foreign, _ := t.others(id, a, r)
		return foreign || !slices.Contains(r.Families, FamilyOf(a))
	})
	var got []netip.Addr
	if len(r.Wanted) > 0 {
		got, missing = t.wanted(id, r, had)
	} else {
		got, missing = t.any(id, r, had)
	}
	if len(missing) > 0 && (r.Required || len(r.Wanted) > 0) {
		got = had
	}
	delete(t.has, id)
	if len(got) > 0 {
		t.has[id] = got
	}
	t.by[id] = r
	t.leaves[id] = slices.DeleteFunc(t.leaves[id], func(a netip.Addr) bool { return slices.Contains(got, a) })
	return missing
}

func (t *twin) wanted(id service.ID, r Request, had []netip.Addr) (got []netip.Addr, missing []Reason) {
	for _, a := range r.Wanted {
		p := t.poolOf(a)
		foreign, clash := t.others(id, a, r)
		got = append(got, a)
		switch {
		case slices.Contains(had, a):
		case !slices.Contains(r.Families, FamilyOf(a)):
			missing = append(missing, IPFamilyMismatch)
		case p == nil || len(r.Named) > 0 && !slices.Contains(r.Named, p.Name) || r.Barred(p.Name) != "":
			missing = append(missing, NotInPool)
		case foreign || clash || t.left(a, id):
			missing = append(missing, Conflict)
		}
	}
	for _, f := range r.Families {
		if r.Required && !slices.ContainsFunc(got, func(a netip.Addr) bool { return FamilyOf(a) == f }) {
			missing = append(missing, IPFamilyMismatch)
		}
	}
	return got, missing
}

func (t *twin) any(id service.ID, r Request, had []netip.Addr) (got []netip.Addr, missing []Reason) {
next:
	for _, f := range r.Families {
		for _, a := range had {
			if p := t.poolOf(a); FamilyOf(a) == f && (p == nil || len(r.Named) == 0 || slices.Contains(r.Named, p.Name)) {
				got = append(got, a)
				continue next
			}
		}
		reason := NoMatchingPool
		var free, shared netip.Addr
		for _, p := range t.pools {
			manual := p.Manual && len(r.Named) == 0
			if manual || len(r.Named) > 0 && !slices.Contains(r.Named, p.Name) || r.Barred(p.Name) != "" {
				continue
			}
			for _, a := range everyAddr {
				if FamilyOf(a) != f || !t.usable(p, a) {
					continue
				}
				reason = Exhausted
				had := t.taken(a, id)
				foreign, clash := t.others(id, a, r)
				if !had && !t.left(a, service.ID{}) && !free.IsValid() {
					free = a
				}
				if had && !foreign && !clash && !t.left(a, id) && !shared.IsValid() {
					shared = a
				}
			}
		}
		switch {
		case shared.IsValid():
			got = append(got, shared)
		case free.IsValid():
			got = append(got, free)
		default:
			missing = append(missing, reason)
			for _, a := range had {
				if FamilyOf(a) == f {
					got = append(got, a)
				}
			}
		}
	}
	return got, missing
}

// everyAddr lists all addresses that the test uses, lowest first.
var everyAddr = func() (all []netip.Addr) {
	for _, first := range []string{"10.1.0.248", "2001:db8::"} {
		a := netip.MustParseAddr(first)
		for range 20 {
			all = append(all, a)
			a = a.Next()
		}
	}
	return all
}()

func randomRange(r *rand.Rand) Range {
	i, n := r.IntN(len(everyAddr)), r.IntN(6)
	last := everyAddr[min(i+n, len(everyAddr)-1)]
	if FamilyOf(last) != FamilyOf(everyAddr[i]) {
		last = everyAddr[i]
	}
	return Range{everyAddr[i], last}
}

func randomPools(r *rand.Rand) (pools []Pool) {
	for i := range r.IntN(5) {
		p := Pool{Name: fmt.Sprint("pool", i), Priority: int32(r.IntN(2)), Manual: r.IntN(4) == 0, AvoidBuggy: r.IntN(3) == 0}
		for range 1 + r.IntN(3) {
			p.Addresses = append(p.Addresses, randomRange(r))
		}
		for range r.IntN(2) {
			p.Reserved = append(p.Reserved, randomRange(r))
		}
		pools = append(pools, p)
	}
	return pools
}

func randomNodes(r *rand.Rand) map[netip.Addr]string {
	nodes := map[netip.Addr]string{}
	for i := range r.IntN(4) {
		nodes[everyAddr[r.IntN(len(everyAddr))]] = fmt.Sprint("node", i)
	}
	return nodes
}

func randomRequest(r *rand.Rand) Request {
	q := Request{Families: [][]Family{{IPv4}, {IPv6}, {IPv4, IPv6}, {IPv6, IPv4}}[r.IntN(4)], Required: r.IntN(2) == 0}
	for range max(0, r.IntN(5)-2) {
		if a := everyAddr[r.IntN(len(everyAddr))]; !slices.Contains(q.Wanted, a) {
			q.Wanted = append(q.Wanted, a)
		}
	}
	if r.IntN(4) == 0 {
		q.Named = []string{fmt.Sprint("pool", r.IntN(5))}
	}
	barred := fmt.Sprint("pool", r.IntN(8))
	q.Barred = func(pool string) string {
		if pool == barred {
			return "is not for it"
		}
		return ""
	}
	q.SharingKey = []string{"", "a", "b"}[r.IntN(3)]
	for range 1 + r.IntN(2) {
		first := uint16(80 + r.IntN(4))
		q.Ports = append(q.Ports, Port{service.TCP, first, first + uint16(max(0, r.IntN(6)-4))})
	}
	if r.IntN(20) == 0 {
		q.Ports = []Port{{service.AnyProtocol, 0, 65535}}
	}
	if r.IntN(5) == 0 {
		q.Current = []netip.Addr{everyAddr[r.IntN(len(everyAddr))]}
	}
	return q
}

func TestAsTwin(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, slow := New(), &twin{has: map[service.ID][]netip.Addr{}, by: map[service.ID]Request{}, leaves: map[service.ID][]netip.Addr{}}
		var steps []string
		for step := range 120 {
			id := service.ID{Namespace: "default", Name: fmt.Sprint("s", r.IntN(25))}
			switch n := r.IntN(20); {
			case n == 0 || step == 0:
				pools := randomPools(r)
				steps = append(steps, fmt.Sprintf("pools %+v", pools))
				slow.nodes = randomNodes(r)
				a.SetNodes(slow.nodes)
				refused := slices.Sorted(maps.Keys(a.SetPools(pools)))
				if diff := cmp.Diff(slow.setPools(pools), refused, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("seed %d step %d: refused pools (-twin +got):\n%s%v", seed, step, diff, steps)
				}
			case n < 3:
				steps = append(steps, fmt.Sprint("settle ", id))
				a.Settle(id)
				delete(slow.leaves, id)
			case n < 6:
				steps = append(steps, fmt.Sprint("release ", id))
				a.Release(id)
				delete(slow.has, id)
				delete(slow.leaves, id)
			default:
				q := randomRequest(r)
				steps = append(steps, fmt.Sprintf("assign %s %+v", id, q))
				missing := slow.assign(id, q)
				got := a.Assign(id, q)
				if diff := cmp.Diff(missing, reasons(got.Missing), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("seed %d step %d: missing (-twin +got):\n%s%v", seed, step, diff, got)
				}
			}
			compare(t, seed, step, a, slow)
			if t.Failed() {
				t.Fatal(steps[max(0, len(steps)-12):])
			}
		}
	}
}

func reasons(all []Finding) (words []Reason) {
	for _, f := range all {
		words = append(words, f.Reason)
	}
	return words
}

// compare compares assigned and leaving addresses with the twin's.
func compare(t *testing.T, seed uint64, step int, a *Allocator, slow *twin) {
	t.Helper()
	for i := range 25 {
		id := service.ID{Namespace: "default", Name: fmt.Sprint("s", i)}
		if diff := cmp.Diff(slow.has[id], a.Held(id), cmpopts.EquateEmpty(), cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); diff != "" {
			t.Errorf("seed %d step %d: %s has (-twin +got):\n%s", seed, step, id, diff)
		}
	}
	for _, p := range slow.pools {
		var want [2]Usage
		for _, addr := range everyAddr {
			if !slow.usable(p, addr) {
				continue
			}
			u := &want[FamilyOf(addr)]
			u.Total++
			if slow.taken(addr, service.ID{}) || slow.left(addr, service.ID{}) {
				u.Used++
			} else {
				u.Free++
			}
		}
		if got, ok := a.Usage(p.Name); !ok || got != want {
			t.Errorf("seed %d step %d: pool %s: usage %v, want %v", seed, step, p.Name, got, want)
		}
	}
}
