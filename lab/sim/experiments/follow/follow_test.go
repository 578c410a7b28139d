package follow

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/ring"
)

func hops(n int) (all []Balancer) {
	for i := range n {
		all = append(all, Balancer(i+1))
	}
	return all
}

// moved returns the share of flows that move to another load balancer, and the number of
// those whose load balancer still exists.
func moved(a, b Group, k Kind) (all, needless float64) {
	const flows = 100000
	for i := range uint64(flows) {
		h := uint32(Mix(i))
		was, is := a.At(k, h), b.At(k, h)
		if was == is {
			continue
		}
		all++
		if slices.Contains(b.Hops(), was) && slices.Contains(a.Hops(), is) {
			needless++
		}
	}
	return all / flows, needless / flows
}

func TestGroupsMoveFlows(t *testing.T) {
	four, five := NewGroup(hops(4), 512), NewGroup(hops(5), 512)
	less := four.With([]Balancer{1, 2, 4})
	more := four.With(hops(5))
	if all, needless := moved(four, less, Resilient); math.Abs(all-0.25) > 0.01 || needless > 0 {
		t.Errorf("resilient, one less: %v moved, %v needlessly", all, needless)
	}
	if all, needless := moved(four, more, Resilient); math.Abs(all-0.2) > 0.01 || needless > 0 {
		t.Errorf("resilient, one more: %v moved, %v needlessly", all, needless)
	}
	// As measured with four next hops.
	if all, _ := moved(four, less, Plain); all < 0.3 || all > 0.5 {
		t.Errorf("plain, one less: %v moved, want a third to a half", all)
	}
	hundred := NewGroup(hops(100), 512)
	if five.Fullest(Resilient) > 1.01 || hundred.Fullest(Resilient) != 6*100/512. {
		t.Error("buckets are not shared out evenly")
	}
	for _, g := range []Group{less, more, less.With(hops(100)), more.With([]Balancer{7})} {
		has := map[Balancer]int{}
		for _, b := range g.buckets {
			has[b]++
		}
		for _, b := range g.hops {
			if share := 512 / len(g.hops); has[b] < share || has[b] > share+1 {
				t.Errorf("balancer %d of %v has %d buckets", b, g.hops, has[b])
			}
		}
	}
}

func farm(t *testing.T) *Farm {
	t.Helper()
	f, err := NewFarm(1021, ring.NewBuilder(20*1021), Members(1, 8))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// follows sends a packet on each connection after a change, and returns how many are
// broken with each way, with resilient groups, and how many are lost.
func follows(t *testing.T, s *State, conns []Conn) (broken [Ways]int, lost int) {
	t.Helper()
	for i := range conns {
		if !s.Step(&conns[i]) {
			lost++
			continue
		}
		for way := range Ways {
			if conns[i].Broken&Bit(Resilient, way) != 0 {
				broken[way]++
			}
		}
	}
	return broken, lost
}

func open(s *State, n int) (conns []Conn) {
	for i := range n {
		conns = append(conns, s.Open(1, uint64(i), 0, 1e9))
	}
	return conns
}

func change(t *testing.T, f *Farm, members []ring.Member, began ...int) {
	t.Helper()
	if err := f.Change(members, began); err != nil {
		t.Fatal(err)
	}
}

// TestWhatBreaks follows connections while a server joins and a load balancer is
// replaced. Each way must break exactly the expected connections.
func TestWhatBreaks(t *testing.T) {
	const n = 8000
	s := &State{Groups: []Group{NewGroup(hops(4), 512)}, Farm: farm(t), Began: make([]int, 5)}
	conns := open(s, n)
	if broken, lost := follows(t, s, conns); broken != [Ways]int{} || lost != 0 {
		t.Fatalf("nothing changed: %v broken, %d lost", broken, lost)
	}
	change(t, s.Farm, append(s.Farm.Servers(), NewMember(1, 9, Moment(1))), 0)
	broken, _ := follows(t, s, conns)
	if broken[Maglev] < n/12 || broken[Maglev] > n/6 || broken[OwnChoice]+broken[FlowTable]+broken[SecondChance] != 0 {
		t.Fatalf("a server more: %v broken", broken)
	}
	ring := broken[Maglev]
	s.Groups = []Group{s.Groups[0].With([]Balancer{2, 3, 4, 5})}
	s.Began = append(s.Began, 1)
	change(t, s.Farm, s.Farm.Servers(), 0, 1)
	broken, _ = follows(t, s, conns)
	if want := float64(ring) / 4; math.Abs(float64(broken[FlowTable])-want) > 0.25*want {
		t.Errorf("flow table: %d broken, want about %v", broken[FlowTable], want)
	}
	if want := n / 4 * 8 / 9.; math.Abs(float64(broken[OwnChoice])-want) > 0.1*want {
		t.Errorf("own choice: %d broken, want about %v", broken[OwnChoice], want)
	}
	if broken[SecondChance] != 0 || broken[Maglev] != ring {
		t.Errorf("a balancer instead of another: %v broken", broken)
	}
}

// TestServersThatGo checks that the connections of removed servers are lost, and those of
// draining servers are not.
func TestServersThatGo(t *testing.T) {
	const n = 8000
	s := &State{Groups: []Group{NewGroup(hops(4), 512)}, Farm: farm(t)}
	conns := open(s, n)
	drained := slices.Clone(s.Farm.Servers())
	drained[2].Weight, drained[2].Drained = 0, Moment(1)
	change(t, s.Farm, drained, 0)
	broken, lost := follows(t, s, conns)
	if lost != 0 || broken[SecondChance] != 0 || broken[Maglev] < n/10 {
		t.Errorf("drained: %v broken, %d lost", broken, lost)
	}
	change(t, s.Farm, slices.Delete(slices.Clone(drained), 2, 3), 0)
	broken, lost = follows(t, s, conns)
	if math.Abs(float64(lost)-n/8) > n/80 || broken[SecondChance] != 0 {
		t.Errorf("gone: %v broken, %d lost, want about %d", broken, lost, n/8)
	}
}

// TestANewBalancerNeedsAges checks that a load balancer that has just started knows the
// previous owner of a slot only from the servers' ages.
func TestNewBalancerNeedsAges(t *testing.T) {
	for _, since := range []time.Time{{}, Moment(1)} {
		s := &State{Groups: []Group{NewGroup(hops(4), 512)}, Farm: farm(t), Began: make([]int, 5)}
		conns := open(s, 8000)
		s.Groups = []Group{s.Groups[0].With([]Balancer{2, 3, 4, 5})}
		s.Began = append(s.Began, 1)
		change(t, s.Farm, append(s.Farm.Servers(), NewMember(1, 9, since)), 0, 1)
		if broken, _ := follows(t, s, conns); broken[SecondChance] > 0 != since.IsZero() {
			t.Errorf("ages known %v: %v broken", !since.IsZero(), broken)
		}
	}
}

func TestLives(t *testing.T) {
	stream := NewStream(1, 2)
	l := NewLives(30, 1)
	var born, met, over float64
	const n = 400000
	for range n {
		born += l.New(stream) / n
		life, so := l.Met(stream)
		met, over = met+life/n, over+so/n
	}
	// The mean lifetime of open connections is the second moment divided by the first.
	if want := 30 * math.E; math.Abs(born-30) > 0.5 || math.Abs(met-want) > 2 || math.Abs(over-want/2) > 1 {
		t.Errorf("means %v, %v and %v, want 30, %v and half of that", born, met, over, want)
	}
}
