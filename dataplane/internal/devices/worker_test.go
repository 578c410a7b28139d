package devices_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	patience = 30 * time.Second
	never    = time.Hour
)

// looker is work that records the names of the devices it sees.
type looker struct {
	looks    atomic.Int64
	released atomic.Int64
	names    []string // used only by the thread
	thread   int
	log      testkit.Output
}

func (l *looker) work() devices.Work {
	return devices.Work{
		Name: "looker", Log: slog.New(slog.NewTextHandler(&l.log, nil)), Settle: time.Millisecond, Relook: never,
		Begin:   func() error { l.thread = unix.Gettid(); return nil },
		Release: func() error { l.released.Add(1); return nil },
		Reconcile: func() error {
			defer l.looks.Add(1)
			links, err := netlist.Whole(netlink.LinkList)
			l.names = nil
			for _, link := range links {
				l.names = append(l.names, link.Attrs().Name)
			}
			if unix.Gettid() != l.thread {
				err = errors.New("on another thread")
			}
			return err
		},
	}
}

// start starts work in a namespace. It ends with the test.
func start(t *testing.T, ns *netns.NS, work devices.Work) *devices.Worker {
	t.Helper()
	var w *devices.Worker
	testkit.Do(t, ns, func() (err error) {
		w, err = devices.Start(work)
		return err
	})
	t.Cleanup(func() {
		if err := w.End(nil); err != nil && !errors.Is(err, devices.ErrClosed) {
			t.Error(err)
		}
	})
	return w
}

// wantDevices waits until the work has seen exactly these.
func (l *looker) wantDevices(t *testing.T, w *devices.Worker, want ...string) {
	t.Helper()
	slices.Sort(want)
	testkit.Eventually(t, patience, func() error {
		got, err := devices.Ask(w, func() ([]string, error) { return slices.Sorted(slices.Values(l.names)), nil })
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("saw %q, want %q", got, want)
		}
		return nil
	})
}

func TestWorkerFollowsItsNamespace(t *testing.T) {
	ns := testkit.NetNS(t)
	l := &looker{}
	w := start(t, ns, l.work())
	l.wantDevices(t, w, "lo")
	for i := range 3 {
		testkit.Do(t, ns, func() error {
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("br", i)}})
		})
	}
	l.wantDevices(t, w, "lo", "br0", "br1", "br2")
	before := l.looks.Load()
	testkit.Do(t, ns, func() error {
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr("10.0.0.1/24")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(br, a)
	})
	testkit.Eventually(t, patience, func() error {
		if l.looks.Load() == before {
			return errors.New("an address is not seen")
		}
		return nil
	})
	testkit.Do(t, ns, func() error {
		br, err := netlink.LinkByName("br1")
		if err != nil {
			return err
		}
		return netlink.LinkDel(br)
	})
	l.wantDevices(t, w, "lo", "br0", "br2")
	if said := l.log.String(); said != "" {
		t.Error(said)
	}
}

// TestWorkerLooksAgain: nothing changes, and the work fails.
func TestWorkerLooksAgain(t *testing.T) {
	l := &looker{}
	work := l.work()
	work.Relook = time.Millisecond
	work.Reconcile = func() error { l.looks.Add(1); return errors.New("no luck") }
	start(t, testkit.NetNS(t), work)
	testkit.Eventually(t, patience, func() error {
		if n := l.looks.Load(); n < 5 {
			return fmt.Errorf("looked %d times", n)
		}
		return nil
	})
	if said := l.log.String(); !strings.Contains(said, "looker: attach or write") || !strings.Contains(said, "no luck") {
		t.Errorf("said %q", said)
	}
}

func TestWorkerThatCannotBegin(t *testing.T) {
	l := &looker{}
	work := l.work()
	work.Begin = func() error { return errors.New("no luck") }
	work.Release = func() error { l.released.Add(1); return errors.New("nor here") }
	testkit.Do(t, testkit.NetNS(t), func() error {
		w, err := devices.Start(work)
		if w != nil || err == nil || err.Error() != "looker: no luck\nnor here" {
			t.Errorf("got %v, %v", w, err)
		}
		return nil
	})
	if l.released.Load() != 1 || l.looks.Load() != 0 {
		t.Errorf("released %d times, looked %d times", l.released.Load(), l.looks.Load())
	}
}

// TestWorkerEnds makes calls while the worker ends: each is executed or returns
// ErrClosed.
func TestWorkerEnds(t *testing.T) {
	l := &looker{}
	w := start(t, testkit.NetNS(t), l.work())
	var calls sync.WaitGroup
	var begun atomic.Int64
	for range 8 {
		calls.Go(func() {
			for {
				ran := false
				err := w.Do(func() error { ran = true; return nil })
				begun.Add(1)
				if ran != (err == nil) || err != nil && !errors.Is(err, devices.ErrClosed) {
					t.Errorf("ran %t: %v", ran, err)
				}
				if err != nil {
					return
				}
			}
		})
	}
	testkit.Eventually(t, patience, func() error {
		if begun.Load() < 100 {
			return errors.New("calls are not answered")
		}
		return nil
	})
	err := w.End(func() error {
		if l.released.Load() > 0 {
			t.Error("released before the last thing was done")
		}
		return errors.New("no luck")
	})
	if err == nil || err.Error() != "no luck" {
		t.Errorf("End gave %v", err)
	}
	calls.Wait()
	if err := w.End(nil); !errors.Is(err, devices.ErrClosed) || err.Error() != "looker: closed" {
		t.Errorf("a second End gave %v", err)
	}
	if l.released.Load() != 1 {
		t.Errorf("released %d times", l.released.Load())
	}
}
