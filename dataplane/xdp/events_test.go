package xdp

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/observe"
	"github.com/fairlead/fairlead/lab/testkit"
)

// await returns the next event.
func await(t *testing.T, events <-chan Event) Event {
	t.Helper()
	select {
	case e, open := <-events:
		if !open {
			t.Fatal("the events have ended")
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event")
	}
	return Event{}
}

func TestEvents(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.5.1:8080"))
	unserved := packet{src: "192.0.2.7:1234", dst: "10.1.1.1:81", payload: 300}.bytes(t)
	n.run(t, d, unserved) // before anyone follows
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	events, err := d.Events(ctx, 1)
	must(t, err)
	n.run(t, d, unserved)
	e := await(t, events)
	if e.Reason != "no-frontend" || e.Interface != "eth0" || e.Length != len(unserved) || !bytes.Equal(e.Data, unserved[:128]) {
		t.Errorf("%+v", e)
	}
	if off := e.Time.Sub(began); off < -time.Minute || off > time.Minute {
		t.Errorf("at %v, %v off", e.Time, off)
	}
	short := packet{src: "192.0.2.7:1234", dst: "10.1.1.1:81"}.bytes(t)
	n.run(t, d, short)
	if e := await(t, events); !bytes.Equal(e.Data, short) {
		t.Errorf("%x, want %x", e.Data, short)
	}
	if _, err := d.Events(t.Context(), 1); !errors.Is(err, observe.ErrFollowed) {
		t.Errorf("a second follower: %v", err)
	}
	cancel()
	testkit.Eventually(t, patience, func() error {
		if _, open := <-events; open {
			return errors.New("the event stream is still open")
		}
		return nil
	})
	// Without a follower the buffer stays empty, and the next follower starts from
	// scratch.
	n.run(t, d, unserved)
	if d.settings.Sample != ^uint32(0) {
		t.Errorf("sample is %#x", d.settings.Sample)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	testkit.Eventually(t, patience, func() (err error) {
		events, err = d.Events(ctx, 1)
		return err
	})
	n.run(t, d, short)
	if e := await(t, events); !bytes.Equal(e.Data, short) {
		t.Errorf("something older came: %x", e.Data)
	}
}

// About the requested share of many drops is reported. Counters count all, per CPU.
func TestEventsAreSampled(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.5.1:8080"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := d.Events(ctx, 16)
	must(t, err)
	const drops = 8000
	n.passed(t, d, packet{src: "192.0.2.7:1234", dst: "10.1.1.1:81"}.bytes(t), drops)
	received := 0
	for idle, end := false, time.Now().Add(patience); !idle; {
		select {
		case <-events:
			received++
		case <-time.After(time.Second):
			idle = received >= drops/32 || time.Now().After(end)
		}
	}
	if received < drops/32 || received > drops/8 {
		t.Errorf("%d of %d drops reported, want about a sixteenth", received, drops)
	}
	byCPU, err := d.DropsByCPU()
	must(t, err)
	var sum uint64
	for _, c := range byCPU["no-frontend"] {
		sum += c
	}
	if sum != drops || len(byCPU) != len(d.reasons) {
		t.Errorf("counted %d: %v", sum, byCPU)
	}
}
