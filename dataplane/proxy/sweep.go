package proxy

import (
	"bufio"
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
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/ownns"
	"github.com/fairlead/fairlead/internal/wake"
)

// sweeper ends connected UDP sockets whose endpoint was removed: unlike with TCP, they
// would never notice that nothing answers any more. An application sees ECONNABORTED and
// connects again. Each sweep reads all sockets, so that one serves many changes and none
// is missed.
type sweeper struct {
	config Config
	// idle: the kernel cannot end sockets.
	idle bool
	// iterator prints the origins of all UDP sockets of the node. Without it each
	// network namespace is queried for its own.
	iterator *ebpf.Program
	origins  *ebpf.Map
	sent     *ebpf.Map
	// keeps reports whether a service still has an endpoint for connected sockets.
	keeps func(proxyServiceKey, netip.AddrPort) bool
	awake chan struct{}
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once

	mu      sync.Mutex
	problem error // of the last sweep
}

// sweepPause is the minimum time between two sweeps.
const sweepPause = 100 * time.Millisecond

// newSweeper works in the calling thread's network namespace and those of config.
func newSweeper(config Config, kernel *proxyObjects, missing features.Missing, keeps func(proxyServiceKey, netip.AddrPort) bool) (*sweeper, error) {
	own, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("own network namespace: %w", err)
	}
	s := &sweeper{
		config: config, idle: missing.Has(features.SocketDestroy), iterator: kernel.ListOrigins, origins: kernel.Origins, sent: kernel.Sent, keeps: keeps,
		awake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go s.run(own)
	s.wake() // for a predecessor's unfinished work
	return s, nil
}

// wake requests a sweep soon.
func (s *sweeper) wake() {
	wake.Up(s.awake)
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
		for range 2 { // the first sweep may miss a socket that is just connecting
			s.say(s.sweep(own))
			select {
			case <-s.quit:
				return
			case <-time.After(sweepPause):
			}
		}
	}
}

// say stores a problem for Describe, and logs it once.
func (s *sweeper) say(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && (s.problem == nil || s.problem.Error() != err.Error()) {
		s.config.Log.Warn("proxy: failed to close UDP sockets of removed endpoints", "error", err)
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

// sweep ends the sockets whose endpoint was removed, in own and in the named namespaces.
func (s *sweeper) sweep(own netns.NsHandle) error {
	if s.idle {
		return nil
	}
	if s.iterator == nil {
		return s.eachNamespace(own, s.sweepHere)
	}
	stale, err := s.stale()
	if err != nil || len(stale) == 0 {
		return err
	}
	err = s.eachNamespace(own, func() error { return stale.endHere() })
	if len(stale) > 0 {
		err = errors.Join(err, fmt.Errorf("%d network namespaces with such sockets are not in %s: mount the container runtime's network namespace folder",
			len(stale), s.config.Namespaces))
	}
	return err
}

// eachNamespace runs f in own and in every named namespace.
func (s *sweeper) eachNamespace(own netns.NsHandle, f func() error) error {
	errs := []error{inNamespace(own, f)}
	names, err := os.ReadDir(s.config.Namespaces)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, name := range names {
		ns, err := netns.GetFromPath(filepath.Join(s.config.Namespaces, name.Name()))
		if err != nil {
			continue // removed in the meantime
		}
		errs = append(errs, inNamespace(ns, f))
		ns.Close()
	}
	return errors.Join(errs...)
}

// inNamespace runs f on a thread in a network namespace.
func inNamespace(ns netns.NsHandle, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // permanently: the thread ends with the goroutine
		err := ownns.Enter(int(ns))
		switch {
		case err == nil:
			err = f()
		case errors.Is(err, unix.EINVAL):
			err = nil // the named namespace no longer exists
		}
		result <- err
	}()
	return <-result
}

// sockets are cookies of sockets, by the cookies of their network namespaces.
type sockets map[uint64]map[uint64]bool

// stale returns the sockets whose endpoint was removed, in every namespace of the node.
func (s *sweeper) stale() (sockets, error) {
	found := sockets{}
	err := s.eachOrigin(func(o *proxyOrigin) {
		if s.serves(o) {
			return
		}
		if found[o.Netns] == nil {
			found[o.Netns] = map[uint64]bool{}
		}
		found[o.Netns][o.Cookie] = true
	})
	if err != nil {
		return nil, fmt.Errorf("read the destinations of connected sockets: %w", err)
	}
	return found, nil
}

// keepsRequested reports whether the service that a socket requested still has this endpoint:
// a service with that address, or else a node port.
func (s *sweeper) keepsRequested(requested proxyEndpoint, target netip.AddrPort) bool {
	k := proxyServiceKey{Addr: requested.Addr, Port: requested.Port, Proto: unix.IPPROTO_UDP}
	return s.keeps(k, target) || s.keeps(proxyServiceKey{Port: k.Port, Proto: k.Proto}, target)
}

// serves reports whether a socket's endpoint still serves it.
func (s *sweeper) serves(o *proxyOrigin) bool {
	return s.keeps(o.Service, netip.AddrPortFrom(fromAddr(o.Target.Addr), netorder.Port(o.Target.Port)))
}

// eachOrigin reads the iterator's output.
func (s *sweeper) eachOrigin(f func(*proxyOrigin)) error {
	all, err := link.AttachIter(link.IterOptions{Program: s.iterator, Map: s.origins})
	if err != nil {
		return err
	}
	defer all.Close()
	file, err := all.Open()
	if err != nil {
		return err
	}
	defer file.Close()
	for r := bufio.NewReader(file); ; {
		var o proxyOrigin
		if _, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(&o)), unsafe.Sizeof(o))); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		f(&o)
	}
}

// endHere ends those of the calling thread's namespace, and removes them from the set.
func (all sockets) endHere() error {
	cookie, err := ownns.Cookie()
	if err != nil || all[cookie] == nil {
		return err
	}
	here := all[cookie]
	delete(all, cookie)
	return endSockets(func(id diagID) bool { return here[id.cookie()] })
}

// sweepHere ends the connected UDP sockets of the calling thread's namespace whose
// endpoint was removed, as far as the programs remember what they requested.
func (s *sweeper) sweepHere() error {
	return endSockets(func(id diagID) bool {
		key := proxySentKey{Cookie: id.cookie(), Target: id.peer()}
		var requested proxyEndpoint
		if s.sent.Lookup(&key, &requested) != nil {
			return false // no service selected this endpoint for it
		}
		return !s.keepsRequested(requested, netip.AddrPortFrom(fromAddr(key.Target.Addr), netorder.Port(key.Target.Port)))
	})
}
