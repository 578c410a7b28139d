package lab_test

import (
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit"
)

const mbit = 1_000_000

// pair is two hosts with a shaper at b's end.
func pair(s lab.Shape) lab.Topology {
	return lab.Topology{
		Hosts: []lab.HostSpec{{Name: "a"}, {Name: "b"}},
		Links: []lab.Link{{
			A: lab.At("a", "eth0", "10.0.0.1/24", "10.0.0.3/24"),
			B: lab.At("b", "eth0", "10.0.0.2/24").Shaped(s),
		}},
	}
}

// flood sends from b to an address of a for the duration of a test, and returns a's end.
func flood(t *testing.T, l *lab.Lab, to string) io.Reader {
	t.Helper()
	ln, err := l.Host("a").Listen("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.Host("b").Dial(t.Context(), netip.Addr{}, netip.MustParseAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	in, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	go io.Copy(out, endless{})
	return in
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// perSecond is a rate in bits per second.
func perSecond(bytes int64, since time.Time) float64 {
	return float64(bytes) * 8 / time.Since(since).Seconds()
}

// The clock starts before the first byte can be sent, so a busy machine can only make it
// look slower: the upper bound is the strict one.
func TestTokenBucketLimits(t *testing.T) {
	l := build(t, pair(lab.Shape{Rate: 20 * mbit}))
	start := time.Now()
	n, err := io.CopyN(io.Discard, flood(t, l, "10.0.0.1:80"), 2_000_000)
	if err != nil {
		t.Fatal(err)
	}
	if got := perSecond(n, start); got > 21*mbit || got < 2*mbit {
		t.Errorf("%.1f Mbit/s through a bucket of 20", got/mbit)
	}
}

func TestClassesShare(t *testing.T) {
	l := build(t, pair(lab.Shape{
		Rate:    20 * mbit,
		Classes: []lab.Class{{To: "10.0.0.3/32", Rate: 15 * mbit}},
	}))
	begun := time.Now()
	guaranteed, rest := flood(t, l, "10.0.0.3:80"), flood(t, l, "10.0.0.1:80")
	var both int64
	// If a busy machine keeps one class from sending, the other gets its share.
	testkit.Eventually(t, long, func() error {
		start := time.Now()
		others := make(chan int64, 1)
		go func() {
			n, _ := io.Copy(io.Discard, &until{rest, start.Add(2 * time.Second)})
			others <- n
		}()
		n, err := io.Copy(io.Discard, &until{guaranteed, start.Add(2 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		other := <-others
		both += n + other
		if all := perSecond(both, begun); all > 21*mbit {
			t.Fatalf("%.1f Mbit/s through a bucket of 20", all/mbit)
		}
		if first, second := perSecond(n, start), perSecond(other, start); first < 1.5*second || second == 0 {
			return fmt.Errorf("20 Mbit/s in total: the class with 15 gets %.1f, the rest %.1f", first/mbit, second/mbit)
		}
		return nil
	})
}

// until is a Reader that ends at a given time.
type until struct {
	io.Reader
	end time.Time
}

func (u *until) Read(b []byte) (int, error) {
	if time.Now().After(u.end) {
		return 0, io.EOF
	}
	return u.Reader.Read(b)
}

func TestReshape(t *testing.T) {
	l := build(t, pair(lab.Shape{}))
	qdisc := func() string {
		dev, err := l.Host("b").Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		all, err := l.Host("b").Netlink().QdiscList(dev)
		if err != nil || len(all) != 1 {
			t.Fatalf("%v: %v", err, all)
		}
		return all[0].Type()
	}
	classes := lab.Shape{Rate: 20 * mbit, Classes: []lab.Class{{To: "10.0.0.3/32", Rate: 10 * mbit}}}
	for _, step := range []struct {
		shape lab.Shape
		want  string
	}{{lab.Shape{Rate: 20 * mbit}, "tbf"}, {classes, "htb"}, {lab.Shape{}, "noqueue"}, {lab.Shape{}, "noqueue"}} {
		if err := l.Host("b").Reshape("eth0", step.shape); err != nil {
			t.Fatal(err)
		}
		if got := qdisc(); got != step.want {
			t.Errorf("%+v: %s, want %s", step.shape, got, step.want)
		}
	}
	if err := l.Host("b").Reshape("eth9", lab.Shape{}); err == nil {
		t.Error("a missing interface was shaped")
	}
}
