package netlist

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/testkit"
)

// TestDevicesThatComeAndGo checks that a list of devices is complete while devices are
// added and removed: the kernel interrupts some dumps, which are repeated.
func TestDevicesThatComeAndGo(t *testing.T) {
	const pairs = 100
	ns := testkit.NetNS(t)
	testkit.Do(t, ns, func() error {
		for i := range pairs {
			if err := netlink.LinkAdd(pair(fmt.Sprintf("stays%d", i))); err != nil {
				return err
			}
		}
		return nil
	})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		testkit.Do(t, ns, func() error { return comeAndGo(stop) })
	}()
	defer func() { close(stop); <-done }()
	interrupted := 0
	testkit.Do(t, ns, func() error {
		for began := time.Now(); time.Since(began) < 3*time.Second; {
			if _, err := netlink.LinkList(); errors.Is(err, netlink.ErrDumpInterrupted) {
				interrupted++
			}
			all, err := Whole(netlink.LinkList)
			if err != nil {
				return err
			}
			if len(all) <= 2*pairs { // including loopback
				return fmt.Errorf("%d devices, want more than %d", len(all), 2*pairs)
			}
		}
		return nil
	})
	if interrupted == 0 {
		t.Skip("this kernel interrupted no reading")
	}
	t.Logf("%d readings were interrupted", interrupted)
}

func pair(name string) netlink.Link {
	return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-p"}
}

// comeAndGo repeatedly adds and removes devices.
func comeAndGo(stop <-chan struct{}) error {
	link := pair("goes")
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
		if err := errors.Join(netlink.LinkAdd(link), netlink.LinkDel(link)); err != nil {
			return err
		}
	}
}

// TestListThatNeverStaysTheSame checks that a list that changes all the time does not block
// its readers forever.
func TestListThatNeverStaysTheSame(t *testing.T) {
	reads := 0
	all, err := Whole(func() ([]int, error) {
		reads++
		return []int{reads}, netlink.ErrDumpInterrupted
	})
	if !errors.Is(err, netlink.ErrDumpInterrupted) || reads != tries || len(all) != 1 || all[0] != tries {
		t.Errorf("%v, %v after %d readings", all, err, reads)
	}
}

func TestMain(m *testing.M) { testkit.Main(m) }
