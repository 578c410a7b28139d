package lab_test

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab"
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

// flood sends from b to an address of a for as long as a test goes on, and
// gives a's end.
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

// rate reads some bytes and gives what came per second, in bits.
func rate(t *testing.T, r io.Reader, bytes int64) float64 {
	t.Helper()
	start := time.Now()
	if _, err := io.CopyN(io.Discard, r, bytes); err != nil {
		t.Fatal(err)
	}
	return float64(bytes) * 8 / time.Since(start).Seconds()
}

// A busy machine can only make it slower, so the upper bound is the tight one.
func TestTokenBucketLimits(t *testing.T) {
	l := build(t, pair(lab.Shape{Rate: 20 * mbit}))
	in := flood(t, l, "10.0.0.1:80")
	rate(t, in, 100_000) // the bucket's first filling
	if got := rate(t, in, 2_000_000); got > 24*mbit || got < 2*mbit {
		t.Errorf("%.1f Mbit/s through a bucket of 20", got/mbit)
	}
}

func TestClassesShare(t *testing.T) {
	l := build(t, pair(lab.Shape{
		Rate:    20 * mbit,
		Classes: []lab.Class{{To: "10.0.0.3/32", Rate: 15 * mbit}},
	}))
	guaranteed, rest := flood(t, l, "10.0.0.3:80"), flood(t, l, "10.0.0.1:80")
	type result struct{ guaranteed, rest float64 }
	var r result
	done := make(chan struct{})
	go func() {
		defer close(done)
		start := time.Now()
		n, _ := io.Copy(io.Discard, &until{rest, start.Add(2 * time.Second)})
		r.rest = float64(n) * 8 / time.Since(start).Seconds()
	}()
	start := time.Now()
	n, err := io.Copy(io.Discard, &until{guaranteed, start.Add(2 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	r.guaranteed = float64(n) * 8 / time.Since(start).Seconds()
	<-done
	if sum := r.guaranteed + r.rest; sum > 24*mbit || r.guaranteed < 1.5*r.rest || r.rest == 0 {
		t.Errorf("of 20 Mbit/s the class with 15 gets %.1f, the rest %.1f", r.guaranteed/mbit, r.rest/mbit)
	}
}

// until reads until a moment has passed.
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
