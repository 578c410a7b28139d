package sim

import (
	"fmt"
	"testing"
)

// ether is a LAN of 100 Mbit/s without link layer delay, on the exact clock, calculated
// by hand: a frame of 500 bytes takes 41,120 ns, the gap after it 960, jam and gap 1,280,
// a slot 5,120, and the first bit is received 4,000 ns after it is sent.
type ether struct {
	*Net[Nanoseconds]
	t *testing.T
}

// newEther creates stations with a queue limit. The first numbers of the stream are,
// modulo 2: 0, 1, 0, 1.
func newEther(t *testing.T, stations, limit int) ether {
	e := ether{New[Nanoseconds](Config{}), t}
	var at []Attached
	for i := range stations {
		id, _ := e.add(fmt.Sprint("station ", i), clientNode)
		at = append(at, Attached{id, limit})
	}
	e.SharedLAN(100e6, 0, at)
	e.routed = true
	return e
}

// at returns a node's station. Stations are in reverse order.
func (e ether) at(node int) (who int32) { return stationOf(0, len(e.nodes)-1-node) }

// send schedules a packet from one node to another.
func (e ether) send(when Nanoseconds, from, to, bytes int) {
	p := e.pool.take()
	e.pool.made++
	e.pool.all[p] = packet[Nanoseconds]{to: Node(to), hop: Node(to), size: int32(bytes), held: 1}
	e.q.At(when, e.q.Reserve(), event{kind: enqueue, who: e.at(from), what: p})
}

// got checks that a node receives its n-th packet at the given time, and not before.
func (e ether) got(when Nanoseconds, node int, n uint64) {
	e.t.Helper()
	for _, c := range []struct {
		end  Nanoseconds
		want uint64
	}{{when, n - 1}, {when + 1, n}} {
		if err := e.Run(float64(c.end) / 1e9); err != nil { // up to, but not including, that time
			e.t.Fatal(err)
		}
		if got := e.At(Node(node)).Got; got != c.want {
			e.t.Fatalf("node %d has %d packets before %d ns, want %d", node, got, c.end, c.want)
		}
	}
}

// ends runs to the end, and checks the counts of a node.
func (e ether) ends(node int, want Counts) {
	e.t.Helper()
	if err := e.Run(0.01); err != nil {
		e.t.Fatal(err)
	}
	got := e.At(Node(node))
	got.Delay = 0
	if got != want {
		e.t.Errorf("node %d: %+v, want %+v", node, got, want)
	}
	if b := e.Balance(); b.Made+b.Copied != b.Consumed+b.Lost || b.InFlight != 0 {
		e.t.Errorf("packets got lost in the books: %+v", b)
	}
}

func TestFrameDuration(t *testing.T) {
	e := newEther(t, 2, 100)
	e.send(0, 0, 1, 500)
	e.got(45120, 1, 1)
	e = newEther(t, 2, 100)
	e.send(0, 0, 1, 10) // padded to 64 bytes
	e.got(5120+4000, 1, 1)
}

func TestInterframeGap(t *testing.T) {
	e := newEther(t, 2, 100)
	e.send(0, 0, 1, 500)
	e.send(0, 0, 1, 500)
	e.got(45120, 1, 1)
	e.got(41120+960+45120, 1, 2)
}

func TestNodeWaitsForFrameOfOthers(t *testing.T) {
	e := newEther(t, 3, 100)
	e.send(0, 0, 1, 500)
	e.send(10000, 2, 0, 500)
	e.got(45120, 1, 1)
	e.got(45120+960+45120, 0, 1)
	e.ends(2, Counts{})
}

func TestFullQueueDropsAndHoldsOneLess(t *testing.T) {
	e := newEther(t, 2, 3)
	for range 4 {
		e.send(0, 0, 1, 500)
	}
	e.ends(0, Counts{Dropped: 1}) // one is being sent, and two wait
	if got := e.At(1).Got; got != 3 {
		t.Errorf("%d packets came, want 3", got)
	}
}

// TestCollisionIsRetried: both senders detect the collision at 4,000 ns. Node 2
// detects it first and draws 0 slots, node 0 draws 1. So node 2 sends from 5,280 on. The
// backoff of node 0 ends while it receives that, so it sends afterwards.
func TestCollisionIsRetried(t *testing.T) {
	e := newEther(t, 3, 100)
	e.send(0, 0, 1, 500)
	e.send(0, 2, 1, 500)
	e.got(5280+45120, 1, 1)
	if _, _, st := e.station(e.at(0)); st.attempts != 2 || st.retry {
		t.Errorf("node 0 has tried %d times, want its pause to be over and the second to come", st.attempts)
	}
	e.got(5280+45120+960+45120, 1, 2)
	e.ends(1, Counts{Got: 2, Collided: 2})
}

// TestFirstBitInGapIsNotDetected: nodes 0 and 2 collide as above, and the first bit of
// node 3 comes at 5,000, when all stations are in the gap until 5,280.
func TestFirstBitInGapIsNotDetected(t *testing.T) {
	e := newEther(t, 4, 100)
	e.send(0, 0, 1, 500)
	e.send(0, 2, 1, 500)
	e.send(1000, 3, 1, 500)
	if err := e.Run(5001e-9); err != nil {
		t.Fatal(err)
	}
	if c := e.At(1); c.Silent != 1 || c.Collided != 2 {
		t.Errorf("node 1: %+v, want one undetected frame after two that collided", c)
	}
	e.ends(0, Counts{})
	if got := e.At(1).Got; got != 3 { // all three noticed, and tried again
		t.Errorf("%d packets came, want 3", got)
	}
}

// TestSenderAssumesDeliveryAfterLastBit: node 0 has sent its short frame by 5,120. The frame
// of node 2, started at 3,000, collides with it only at node 1, at 7,000. Node 2 detects
// that at 4,000, and node 0 never does.
func TestSenderAssumesDeliveryAfterLastBit(t *testing.T) {
	e := newEther(t, 3, 100)
	e.send(0, 0, 1, 10)
	e.send(3000, 2, 1, 500)
	e.ends(1, Counts{Got: 1, Collided: 2})
	if b := e.Balance(); b.Lost != 1 {
		t.Errorf("%d packets lost, want node 0's", b.Lost)
	}
}

func TestFrameIsDroppedAfterSixteenAttempts(t *testing.T) {
	e := newEther(t, 3, 100)
	_, _, st := e.station(e.at(0))
	st.attempts = attemptsMost
	e.send(0, 0, 1, 500)
	e.send(0, 2, 1, 500)
	e.ends(0, Counts{GivenUp: 1})
	if got := e.At(1).Got; got != 1 || st.attempts != 1 {
		t.Errorf("%d packets came, want 1; node 0 would begin with attempt %d, want 1", got, st.attempts)
	}
}

// TestStationSendsFirstWhenGapEnds: node 1 has a frame ready when the second
// one of node 0 starts, exactly when the gap after the first ends. It sends, and both
// collide. ns-2 does this for fairness.
func TestStationSendsFirstWhenGapEnds(t *testing.T) {
	e := newEther(t, 2, 100)
	e.send(0, 0, 1, 500)
	e.send(0, 0, 1, 500)
	e.send(10000, 1, 0, 500)
	if err := e.Run(46081e-9); err != nil {
		t.Fatal(err)
	}
	if _, _, st := e.station(e.at(1)); st.mode != sending || !st.retry || e.At(1).Collided != 1 {
		t.Errorf("node 1 is %+v with %+v, want its frame to have collided at 46,080 ns", st, e.At(1))
	}
	e.ends(1, Counts{Got: 2, Collided: 1})
}
