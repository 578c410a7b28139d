package multisite

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
)

// connect connects the gateways by a delay line: a tun device in each, between which this
// process carries the packets. Many kernels have no netem.
func (s *Sites) connect(delay time.Duration) error {
	for _, pair := range [][2]*Site{{s.Daejeon, s.Busan}, {s.Busan, s.Daejeon}} {
		end, err := s.addEnd(pair[0], pair[1])
		if err != nil {
			return fmt.Errorf("%s: %w", pair[0].Gateway, err)
		}
		s.ends = append(s.ends, end)
	}
	for i := range s.ends {
		line := make(chan held, mostHeld)
		s.carrying.Go(func() { hold(s.ends[i], line, delay) })
		s.carrying.Go(func() { release(line, s.ends[1-i]) })
	}
	return nil
}

// addEnd creates a gateway's device with its address and route.
func (s *Sites) addEnd(site, other *Site) (end *os.File, err error) {
	gateway := s.Lab.Host(site.Gateway)
	if err := gateway.Do(func() (err error) { end, err = openTun(); return err }); err != nil {
		return nil, err
	}
	h := gateway.Netlink()
	dev, err := h.LinkByName(WANDev)
	if err == nil {
		err = h.AddrAdd(dev, &netlink.Addr{IPNet: lab.IPNet(netip.PrefixFrom(site.WANAddr, wan.Bits()))})
	}
	if err == nil {
		err = h.LinkSetUp(dev)
	}
	if err == nil {
		err = h.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: lab.IPNet(other.subnet(0, 16)), Gw: other.WANAddr.AsSlice()})
	}
	if err != nil {
		end.Close()
		return nil, err
	}
	return end, nil
}

// openTun creates the device in the current network namespace. Large packets stay in one
// piece, as between two veths.
func openTun() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	req, err := unix.NewIfreq(WANDev)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil // only now can it be polled
}

// held is a packet with the header of the device, and when it leaves the line.
type held struct {
	packet []byte
	due    time.Time
}

// mostHeld is the number of packets on the line. It loses more of them.
const mostHeld = 1 << 14

// hold puts packets on the line until the device is closed.
func hold(from *os.File, line chan<- held, delay time.Duration) {
	goFirst()
	defer close(line)
	for buf := make([]byte, 1<<17); ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case line <- held{append([]byte(nil), buf[:n]...), time.Now().Add(delay)}:
		default:
		}
	}
}

// release takes packets from the line when they are due.
func release(line <-chan held, to *os.File) {
	goFirst()
	for h := range line {
		// Timers of the runtime are late by up to a millisecond.
		for wait := time.Until(h.due); wait > 0; wait = time.Until(h.due) {
			ts := unix.NsecToTimespec(wait.Nanoseconds())
			_ = unix.Nanosleep(&ts, nil) // interrupted sleeps continue
		}
		_, _ = to.Write(h.packet) // like a wire, it loses what cannot be sent
	}
}

// goFirst gives this goroutine its own thread, with precedence: a wire waits for nobody.
func goFirst() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lab.BeforeTheLoad)
}
