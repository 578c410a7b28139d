package proxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netorder"
)

// sweeper ends connected UDP sockets whose target is gone: unlike TCP's they
// would never learn that nobody answers any more. An application sees
// ECONNABORTED and connects again. It looks at all sockets anew each time, so
// that one look serves many changes and none is missed.
type sweeper struct {
	config Config
	// tell gives all origins of UDP.
	tell    *ebpf.Program
	origins *ebpf.Map
	// keeps says whether a service still has a target for who is connected to it.
	keeps func(proxyServiceKey, netip.AddrPort) bool
	awake chan struct{}
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once

	mu      sync.Mutex
	problem error // of the last look
}

// sweepPause is the least time between two looks at all sockets.
const sweepPause = 100 * time.Millisecond

// newSweeper works in the calling thread's network namespace and those of
// config.
func newSweeper(config Config, kernel *proxyObjects, keeps func(proxyServiceKey, netip.AddrPort) bool) (*sweeper, error) {
	own, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("own network namespace: %w", err)
	}
	s := &sweeper{
		config: config, tell: kernel.TellOrigins, origins: kernel.Origins, keeps: keeps,
		awake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go s.run(own)
	s.wake() // for what a predecessor left undone
	return s, nil
}

// wake has it look soon.
func (s *sweeper) wake() {
	select {
	case s.awake <- struct{}{}:
	default:
	}
}

func (s *sweeper) close() {
	s.once.Do(func() { close(s.quit) })
	<-s.done
}

func (s *sweeper) run(own netns.NsHandle) {
	defer close(s.done)
	defer own.Close()
	for {
		select {
		case <-s.quit:
			return
		case <-s.awake:
		}
		for range 2 { // the first look may miss a socket that is just connecting
			s.say(s.sweep(own))
			select {
			case <-s.quit:
				return
			case <-time.After(sweepPause):
			}
		}
	}
}

// say keeps a problem for Describe, and logs it once.
func (s *sweeper) say(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && (s.problem == nil || s.problem.Error() != err.Error()) {
		s.config.Log.Warn("proxy: UDP sockets of targets that are gone", "error", err)
	}
	s.problem = err
}

func (s *sweeper) warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem == nil {
		return nil
	}
	return []string{"connected UDP sockets may stay with targets that are gone: " + s.problem.Error()}
}

// sweep looks at all sockets, and into the namespaces that it has to.
func (s *sweeper) sweep(own netns.NsHandle) error {
	stale, err := s.stale()
	if err != nil || len(stale) == 0 {
		return err
	}
	errs := []error{endIn(own, stale)}
	names, err := os.ReadDir(s.config.Namespaces)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, name := range names {
		ns, err := netns.GetFromPath(filepath.Join(s.config.Namespaces, name.Name()))
		if err != nil {
			continue // it has gone meanwhile
		}
		errs = append(errs, endIn(ns, stale))
		ns.Close()
	}
	if len(stale) > 0 {
		errs = append(errs, fmt.Errorf("%d network namespaces with some are not in %s: show it where the container runtime keeps them",
			len(stale), s.config.Namespaces))
	}
	return errors.Join(errs...)
}

// sockets are cookies of sockets, by the cookies of their network namespaces.
type sockets map[uint64]map[uint64]bool

// stale gives the sockets that have a target which is gone, in every namespace
// of the node.
func (s *sweeper) stale() (sockets, error) {
	all, err := link.AttachIter(link.IterOptions{Program: s.tell, Map: s.origins})
	if err != nil {
		return nil, fmt.Errorf("read what sockets are connected to: %w", err)
	}
	defer all.Close()
	f, err := all.Open()
	if err != nil {
		return nil, fmt.Errorf("read what sockets are connected to: %w", err)
	}
	defer f.Close()
	found := sockets{}
	r := bufio.NewReader(f)
	for {
		var o proxyOrigin
		if _, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(&o)), unsafe.Sizeof(o))); err == io.EOF {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what sockets are connected to: %w", err)
		}
		if s.keeps(o.Service, netip.AddrPortFrom(fromAddr(o.Target.Addr), netorder.Port(o.Target.Port))) {
			continue
		}
		if found[o.Netns] == nil {
			found[o.Netns] = map[uint64]bool{}
		}
		found[o.Netns][o.Cookie] = true
	}
}

// endIn ends those of a namespace, and strikes it off.
func endIn(ns netns.NsHandle, stale sockets) error {
	answer := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		answer <- func() error {
			if err := netns.Set(ns); err != nil {
				return nil // it is none, or no longer
			}
			cookie, err := netnsCookie()
			if err != nil || stale[cookie] == nil {
				return err
			}
			defer delete(stale, cookie)
			return errors.Join(endHere(unix.AF_INET, stale[cookie]), endHere(unix.AF_INET6, stale[cookie]))
		}()
	}()
	return <-answer
}

// What <linux/inet_diag.h> and <linux/sock_diag.h> have and no package does.
const (
	diagConnected    = 1 << 1 // of idiag_states: TCP_ESTABLISHED
	diagIDAt         = 4      // struct inet_diag_sockid in struct inet_diag_msg
	diagIDLength     = 48
	diagCookieAt     = 40 // in it
	diagRequestIDAt  = 8  // in struct inet_diag_req_v2
	diagRequestWhole = diagRequestIDAt + diagIDLength
	sockDestroy      = 21 // SOCK_DESTROY
)

// diagRequest is struct inet_diag_req_v2 for UDP.
func diagRequest(family uint8, states uint32, id []byte) []byte {
	b := make([]byte, diagRequestWhole)
	b[0], b[1] = family, unix.IPPROTO_UDP
	binary.NativeEndian.PutUint32(b[4:], states)
	copy(b[diagRequestIDAt:], id)
	return b
}

// endHere ends sockets of the calling thread's namespace.
func endHere(family uint8, cookies map[uint64]bool) error {
	req := nl.NewNetlinkRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	req.AddRawData(diagRequest(family, diagConnected, nil))
	messages, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil {
		return fmt.Errorf("list sockets (the kernel needs CONFIG_INET_UDP_DIAG): %w", err)
	}
	var errs []error
	for _, m := range messages {
		if len(m) < diagIDAt+diagIDLength {
			continue
		}
		id := m[diagIDAt:][:diagIDLength]
		if cookies[binary.NativeEndian.Uint64(id[diagCookieAt:])] {
			errs = append(errs, destroy(family, id))
		}
	}
	return errors.Join(errs...)
}

// destroy ends a socket; one that has ended is no error.
func destroy(family uint8, id []byte) error {
	req := nl.NewNetlinkRequest(sockDestroy, unix.NLM_F_ACK)
	req.AddRawData(diagRequest(family, 0, id))
	_, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESTALE):
		return nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("end a socket (the kernel needs CONFIG_INET_DIAG_DESTROY): %w", err)
	case err != nil:
		return fmt.Errorf("end a socket: %w", err)
	}
	return nil
}
