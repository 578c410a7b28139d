package vdn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// FailoverOptions configures Failover.
type FailoverOptions struct {
	// Binary is the fairlead binary, Etcd the flags with which it reaches etcd, and
	// Controllers the number of controllers.
	Binary      string
	Etcd        []string
	Controllers int
	// Clients is the number of clients that attach and detach all the time, each with its
	// own containers.
	Clients int
	// Rounds is how often every pair of neighboring controllers is killed, one pair after
	// the other.
	Rounds int
	// Log receives the controllers' logs. It may be nil.
	Log *os.File
}

// FailoverResult is the result of Failover.
type FailoverResult struct {
	Attached, Detached, Kills, Retries int
	// Double is the number of addresses that two attachments had at the same time. Lost
	// is the number of granted leases that are missing, or that still exist after their
	// release.
	Double, Lost int
	// Resumed contains, for each kill in order, the time until the first attachment
	// requested after it was granted.
	Resumed []time.Duration
	Elapsed time.Duration
}

// enough is the number of attachments granted between two kills.
const enough = 40

// Failover lets clients attach and detach while two of the controllers are killed at a
// time, each pair in turn.
func Failover(ctx context.Context, o FailoverOptions) (r FailoverResult, err error) {
	folder, err := os.MkdirTemp("", "fairlead-vdn-")
	if err != nil {
		return r, err
	}
	f := &failover{o: o, has: map[string]netip.Prefix{}, granted: make(chan time.Time, 1024)}
	var urls []string
	for i := range o.Controllers {
		m := &member{o: o, name: fmt.Sprint("c", i), socket: filepath.Join(folder, fmt.Sprintf("c%d.sock", i))}
		f.members, urls = append(f.members, m), append(urls, m.url())
	}
	defer func() {
		for _, m := range f.members {
			err = errors.Join(err, m.kill())
		}
		err = errors.Join(err, os.RemoveAll(folder))
	}()
	for _, m := range f.members {
		if err := m.start(ctx); err != nil {
			return r, err
		}
	}
	if f.ask, err = client.New(client.Config{URL: strings.Join(urls, ",")}); err != nil {
		return r, err
	}
	n := vdn.Network{Name: network, Devices: []string{"eth1"}, Subnets: []vdn.Subnet{{CIDR: netip.MustParsePrefix("10.64.0.0/22")}}}
	if _, err := again(ctx, func() error { return f.ask.PutNetwork(ctx, n) }); err != nil {
		return r, err
	}
	began := time.Now()
	err = errors.Join(f.run(ctx), f.compare(ctx))
	f.r.Elapsed = time.Since(began)
	slices.Sort(f.r.Resumed)
	return f.r, err
}

// failover is a run in progress.
type failover struct {
	o       FailoverOptions
	members []*member
	ask     *client.Client
	granted chan time.Time // when each was requested

	mu  sync.Mutex
	r   FailoverResult
	has map[string]netip.Prefix
}

// run lets the clients work while controllers are killed.
func (f *failover) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	var clients sync.WaitGroup
	errs := make([]error, f.o.Clients)
	for i := range f.o.Clients {
		clients.Go(func() {
			if errs[i] = f.work(ctx, done, i); errs[i] != nil {
				stop() // pointless to continue
			}
		})
	}
	err := f.killAll(ctx)
	close(done)
	clients.Wait()
	stop()
	return errors.Join(append(errs, err)...)
}

// killAll kills every pair Rounds times.
func (f *failover) killAll(ctx context.Context) error {
	for range f.o.Rounds {
		for first := range f.members {
			pair := []*member{f.members[first], f.members[(first+1)%len(f.members)]}
			for _, m := range pair {
				if err := f.killOne(ctx, m); err != nil {
					return err
				}
			}
			for _, m := range pair {
				if err := m.start(ctx); err != nil {
					return err
				}
			}
			if _, err := f.await(ctx, time.Time{}, enough); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *failover) killOne(ctx context.Context, m *member) error {
	killed := time.Now()
	if err := m.kill(); err != nil {
		return err
	}
	at, err := f.await(ctx, killed, 1)
	if err != nil {
		return fmt.Errorf("after %s was killed: %w", m.name, err)
	}
	f.mu.Lock()
	f.r.Kills++
	f.r.Resumed = append(f.r.Resumed, at.Sub(killed))
	f.mu.Unlock()
	_, err = f.await(ctx, killed, enough)
	return err
}

// await waits until n attachments that were requested after the given time are granted,
// and returns the time at which the last of them was.
func (f *failover) await(ctx context.Context, after time.Time, n int) (time.Time, error) {
	limit := time.After(startLimit)
	for n > 0 {
		select {
		case asked := <-f.granted:
			if asked.After(after) {
				n--
			}
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-limit:
			return time.Time{}, fmt.Errorf("nothing is granted for %v", startLimit)
		}
	}
	return time.Now(), nil
}

// work is one client.
func (f *failover) work(ctx context.Context, done <-chan struct{}, i int) error {
	r := rand.New(rand.NewPCG(1, uint64(i)))
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return nil
		default:
		}
		container := fmt.Sprintf("w%d-%d", i, r.IntN(40))
		do := f.attach
		if r.IntN(2) == 0 {
			do = f.detach
		}
		if err := do(ctx, container, i); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (f *failover) attach(ctx context.Context, container string, i int) error {
	var a vdn.Attachment
	asked := time.Now()
	retries, err := again(ctx, func() error {
		asked = time.Now()
		lease, err := f.ask.Attach(ctx, vdn.AttachmentRequest{Network: network, Node: fmt.Sprint("node-", i), Container: container, Interface: "eth0"})
		a = lease.Attachment
		return err
	})
	if err != nil {
		return err
	}
	select {
	case f.granted <- asked:
	default: // the buffer already has enough
	}
	f.mu.Lock()
	f.r.Attached, f.r.Retries = f.r.Attached+1, f.r.Retries+retries
	for id, p := range f.has {
		if id != a.ID && p == a.Addresses[0] {
			f.r.Double++
		}
	}
	if was, again := f.has[a.ID]; again && was != a.Addresses[0] {
		f.r.Lost++
	}
	f.has[a.ID] = a.Addresses[0]
	f.mu.Unlock()
	_, err = again(ctx, func() error {
		_, err := f.ask.Up(ctx, a.ID, vdn.UpReport{Device: "eth1", MAC: "02:00:00:00:00:01", NetNS: "/run/netns/" + container})
		return err
	})
	return err
}

func (f *failover) detach(ctx context.Context, container string, _ int) error {
	id := container + ".eth0"
	f.mu.Lock()
	delete(f.has, id) // once it is released, another client may get the address
	f.mu.Unlock()
	retries, err := again(ctx, func() error { return f.ask.Detach(ctx, id) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.r.Detached, f.r.Retries = f.r.Detached+1, f.r.Retries+retries
	return err
}

// compare checks that every controller has exactly the leases that clients were granted.
func (f *failover) compare(ctx context.Context) error {
	for _, m := range f.members {
		ask, err := client.New(client.Config{URL: m.url()})
		if err != nil {
			return err
		}
		var all []vdn.Attachment
		if _, err := again(ctx, func() (err error) {
			all, err = ask.Attachments(ctx, network, "")
			return err
		}); err != nil {
			return err
		}
		there := map[string]netip.Prefix{}
		for _, a := range all {
			there[a.ID] = a.Addresses[0]
			if f.has[a.ID] != a.Addresses[0] {
				f.r.Lost++
			}
		}
		for id := range f.has {
			if _, ok := there[id]; !ok {
				f.r.Lost++
			}
		}
	}
	return nil
}

// member is one controller.
type member struct {
	o            FailoverOptions
	name, socket string
	cmd          *exec.Cmd
}

func (m *member) url() string { return "unix://" + m.socket }

// start starts the controller and waits until it answers.
func (m *member) start(ctx context.Context) error {
	args := append([]string{"vdn", "controller", "--name", m.name, "--listen", m.url(), "--log-level", "WARN"}, m.o.Etcd...)
	m.cmd = exec.Command(m.o.Binary, args...)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if m.o.Log != nil {
		m.cmd.Stderr = m.o.Log
	}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	ask, err := client.New(client.Config{URL: m.url()})
	if err != nil {
		return err
	}
	_, err = again(ctx, func() error { return ask.Health(ctx) })
	return err
}

// kill ends the controller like a crash does. Without a running one it does nothing.
func (m *member) kill() error {
	if m.cmd == nil || m.cmd.Process == nil {
		return nil
	}
	err := m.cmd.Process.Kill()
	var exit *exec.ExitError
	if died := m.cmd.Wait(); died != nil && !errors.As(died, &exit) {
		err = errors.Join(err, died)
	}
	m.cmd = nil
	return err
}
