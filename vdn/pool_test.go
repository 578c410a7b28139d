package vdn

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// slowPool chooses as Pool must, by checking every address.
type slowPool struct {
	subnet Subnet
	taken  map[netip.Addr]bool
	freed  map[netip.Addr]uint64
}

func (p *slowPool) choose(owner string) (netip.Addr, bool) {
	var mine, fresh, again []netip.Addr
	any := false
	for a := p.subnet.CIDR.Addr(); p.subnet.CIDR.Contains(a); a = a.Next() {
		i := slices.IndexFunc(p.subnet.Reserved, func(r Reservation) bool { return r.Address == a })
		switch {
		case i >= 0 && owner != "" && p.subnet.Reserved[i].Owner == owner:
			any = true
			if !p.taken[a] {
				mine = append(mine, a)
			}
		case i >= 0 || p.taken[a] || !p.subnet.holds(a, owner):
		case p.freed[a] > 0:
			again = append(again, a)
		default:
			fresh = append(fresh, a)
		}
	}
	slices.SortFunc(again, func(a, b netip.Addr) int { return int(p.freed[a]) - int(p.freed[b]) })
	for _, from := range [][]netip.Addr{mine, fresh, again} {
		if len(from) > 0 {
			return from[0], true
		}
		if any {
			break
		}
	}
	return netip.Addr{}, false
}

func randomSubnet(r *rand.Rand) Subnet {
	s := Subnet{CIDR: netip.MustParsePrefix([]string{"10.1.0.0/27", "fd00::/123", "10.1.0.0/29"}[r.IntN(3)])}
	at := func(n int) netip.Addr {
		a := s.CIDR.Addr()
		for range n {
			a = a.Next()
		}
		return a
	}
	if r.IntN(2) == 0 {
		s.Gateway = at(1 + r.IntN(5))
	}
	if r.IntN(2) == 0 {
		s.Ranges = []Range{{at(4), at(6)}, {at(1), at(2)}}
	}
	for i := range r.IntN(3) {
		if a := at(1 + i*2); a != s.Gateway {
			s.Reserved = append(s.Reserved, Reservation{a, fmt.Sprint("o", r.IntN(2))})
		}
	}
	return s
}

// TestPoolsChooseAsTheSlowTwin compares both for arbitrary subnets and operations.
func TestPoolsChooseAsTheSlowTwin(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomSubnet(r)
		fast, slow := NewPool(s), &slowPool{s, map[netip.Addr]bool{}, map[netip.Addr]uint64{}}
		for step := range uint64(100) {
			owner := []string{"", "o0", "o1", "other"}[r.IntN(4)]
			got, ok := fast.Choose(owner)
			want, wantOK := slow.choose(owner)
			if got != want || ok != wantOK {
				t.Fatalf("seed %d, step %d, %+v: owner %q gets %s, %v; want %s, %v", seed, step, s, owner, got, ok, want, wantOK)
			}
			if ok && r.IntN(5) > 1 {
				fast.Take(got)
				slow.taken[got] = true
				delete(slow.freed, got)
			}
			if taken := slices.SortedFunc(maps.Keys(slow.taken), netip.Addr.Compare); len(taken) > 0 && r.IntN(2) == 0 {
				a := taken[r.IntN(len(taken))]
				fast.Release(a, step+1)
				delete(slow.taken, a)
				slow.freed[a] = step + 1
			}
			if got, want := fast.Free(), s.Size()-float64(len(slow.taken)); got != want {
				t.Fatalf("seed %d: %v are free, want %v", seed, got, want)
			}
		}
	}
}

// TestAPoolForgetsWhatItMust checks that a pool with forgotten addresses still returns
// every free address.
func TestAPoolForgetsWhatItMust(t *testing.T) {
	s := Subnet{CIDR: netip.MustParsePrefix("10.0.0.0/15")}
	p := NewPool(s)
	var forgotten int
	for now := range uint64(s.Size()) {
		a, ok := p.Choose("")
		if !ok {
			t.Fatalf("none is left after %d", now)
		}
		p.Take(a)
		forgotten += len(p.Release(a, now+1))
	}
	if want := int(s.Size()) - maxReleased; forgotten != want {
		t.Errorf("%d are forgotten, want %d", forgotten, want)
	}
	seen := map[netip.Addr]bool{}
	for range int(s.Size()) {
		a, ok := p.Choose("")
		if !ok || seen[a] {
			t.Fatalf("after %d: %s, %v; seen: %v", len(seen), a, ok, seen[a])
		}
		seen[a] = true
		p.Take(a)
	}
	if a, ok := p.Choose(""); ok {
		t.Errorf("%s is given of an empty pool", a)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]float64{"10.0.0.0/24": 254, "10.0.0.0/30": 2, "10.0.0.0/31": 0, "10.0.0.0/32": 0, "10.0.0.0/8": 1<<24 - 2, "fd00::/126": 3, "fd00::/127": 2, "fd00::/128": 1} {
		if got := (Subnet{CIDR: netip.MustParsePrefix(text)}).Size(); got != want {
			t.Errorf("%s has %v, want %v", text, got, want)
		}
	}
}
