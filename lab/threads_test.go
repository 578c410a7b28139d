package lab_test

import (
	"net"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/budget"
)

// TestReceiveInThreads limits the threads that receive for a host: they use no more than
// their budget, however many packets arrive.
func TestReceiveInThreads(t *testing.T) {
	l := build(t, lab.Topology{
		Hosts: []lab.HostSpec{{Name: "a"}, {Name: "b"}},
		Links: []lab.Link{{A: lab.At("a", "eth0", "10.0.0.1/24"), B: lab.At("b", "eth0", "10.0.0.2/24")}},
	})
	if err := l.Host("a").Offload("eth0", false); err != nil {
		t.Fatal(err)
	}
	var threads []budget.KernelThread
	for _, queues := range []int{1, 2, 1} {
		var err error
		if threads, err = l.Host("b").ReceiveInThreads("eth0", queues); err != nil {
			t.Fatal(err) // a CPU is needed for each queue
		}
		for _, thread := range threads {
			if err := thread.Limit(0.1); err != nil {
				t.Errorf("%d queues: %v", queues, err)
			}
		}
	}
	const share = 0.02
	if err := threads[0].Limit(share); err != nil {
		t.Fatal(err)
	}
	c, err := l.Host("a").ListenPacket("udp", "10.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	to := &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 9}
	before, err := threads[0].Used()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for time.Since(began) < 300*time.Millisecond {
		c.WriteTo([]byte("hello"), to) // nobody listens: the answer may be an error
	}
	after, err := threads[0].Used()
	if err != nil {
		t.Fatal(err)
	}
	// A tick may pass before the kernel notices that a budget is used up.
	if used, most := after-before, time.Duration(2*share*float64(time.Since(began))); used <= 0 || used > most+10*time.Millisecond {
		t.Errorf("used %s in %s, want at most %s", used, time.Since(began), most)
	}
	if _, err := l.Host("b").ReceiveInThreads("eth1", 1); err == nil {
		t.Error("no error for an interface that does not exist")
	}
}
