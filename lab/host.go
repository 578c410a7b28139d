package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
)

// Host is a running host.
type Host struct {
	spec HostSpec
	ns   *netns.NS
	link *netlink.Handle

	mu        sync.Mutex
	processes map[*Process]bool
	listeners []net.Listener
}

// quiet are the settings of every host: no packet is sent, dropped or delayed unless the
// topology requires it.
var quiet = map[string]string{
	"net.ipv4.conf.%s.rp_filter":            "0",
	"net.ipv4.conf.%s.send_redirects":       "0",
	"net.ipv4.conf.%s.accept_redirects":     "0",
	"net.ipv6.conf.%s.accept_ra":            "0",
	"net.ipv6.conf.%s.accept_dad":           "0",
	"net.ipv6.conf.%s.accept_redirects":     "0",
	"net.ipv6.conf.%s.router_solicitations": "0",
}

func newHost(spec HostSpec) (*Host, error) {
	ns, err := netns.Create(spec.Name)
	if err != nil {
		return nil, err
	}
	h := &Host{spec: spec, ns: ns, processes: map[*Process]bool{}}
	if err := h.configure(); err != nil {
		return nil, errors.Join(fmt.Errorf("host %s: %w", spec.Name, err), h.close())
	}
	return h, nil
}

func (h *Host) configure() (err error) {
	if h.link, err = netlink.NewHandleAt(vnetns.NsHandle(h.ns.FD()), unix.NETLINK_ROUTE); err != nil {
		return err
	}
	sysctls := map[string]string{}
	for name, value := range quiet {
		sysctls[fmt.Sprintf(name, "all")] = value
		sysctls[fmt.Sprintf(name, "default")] = value
	}
	forward := "0"
	if h.spec.Forward {
		forward = "1"
	}
	sysctls["net.ipv4.ip_forward"] = forward
	sysctls["net.ipv6.conf.all.forwarding"] = forward
	sysctls["net.ipv6.conf.default.forwarding"] = forward
	if err := writeSysctls(h.ns, sysctls); err != nil {
		return err
	}
	lo, err := h.link.LinkByName("lo")
	if err != nil {
		return err
	}
	return addAddresses(h.link, lo, h.spec.Loopback)
}

// finish does what requires the links.
func (h *Host) finish(ctx context.Context) error {
	if _, err := awaitDev(ctx, h.link, "lo", h.spec.Loopback); err != nil {
		return err
	}
	if err := addSNAT(h.ns, h.spec.SNAT); err != nil {
		return err
	}
	return writeSysctls(h.ns, h.spec.Sysctls)
}

func writeSysctls(ns *netns.NS, sysctls map[string]string) error {
	return ns.Do(func() error {
		for _, name := range slices.Sorted(maps.Keys(sysctls)) {
			if err := netns.WriteSysctl(name, sysctls[name]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Name is the name of the host and of its namespace.
func (h *Host) Name() string { return h.spec.Name }

// Namespace is the host's network namespace.
func (h *Host) Namespace() *netns.NS { return h.ns }

// Netlink is a route netlink handle in the host's namespace; it lives as long as the
// host.
func (h *Host) Netlink() *netlink.Handle { return h.link }

// Do runs f in the host's namespace, like netns.NS.Do.
func (h *Host) Do(f func() error) error { return h.ns.Do(f) }

// Listen opens a listener in the host; it can be used from everywhere and is closed with
// the host.
func (h *Host) Listen(network, address string) (net.Listener, error) {
	var ln net.Listener
	err := h.Do(func() (err error) {
		ln, err = net.Listen(network, address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", h.Name(), err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listeners = append(h.listeners, ln)
	return ln, nil
}

// ListenPacket opens a packet socket in the host; the caller closes it.
func (h *Host) ListenPacket(network, address string) (net.PacketConn, error) {
	var c net.PacketConn
	err := h.Do(func() (err error) {
		c, err = net.ListenPacket(network, address)
		return err
	})
	return c, err
}

// Dial opens a TCP connection from the host, from a local address or, for the zero Addr,
// from one that the kernel selects.
func (h *Host) Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort) (net.Conn, error) {
	return h.ns.DialTCP(ctx, local, remote)
}

// Start starts a command in the host, as the leader of its own process group. The lab
// ends it with the host at the latest.
func (h *Host) Start(cmd *exec.Cmd) (*Process, error) {
	p, err := start(h.ns, cmd)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", h.Name(), err)
	}
	h.mu.Lock()
	h.processes[p] = true
	h.mu.Unlock()
	go func() {
		<-p.Done()
		h.mu.Lock()
		delete(h.processes, p)
		h.mu.Unlock()
	}()
	return p, nil
}

// StartLogged is Start with the command's output appended to a file.
func (h *Host) StartLogged(cmd *exec.Cmd, file string) (*Process, error) {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	return h.Start(cmd)
}

// Converse is Start for a command that reads orders from its standard input and answers
// on its standard output. It takes precedence over other work on this machine, which is
// not part of the measurement; its standard error is that of this process.
func (h *Host) Converse(cmd *exec.Cmd) (p *Process, in io.WriteCloser, out io.ReadCloser, err error) {
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	out, w, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd.Stdout = w
	p, err = h.Start(cmd)
	w.Close()
	if err != nil {
		out.Close()
		return nil, nil, nil, err
	}
	return p, in, out, p.GoFirst()
}

// Self returns a command that runs this program again, for parts of an experiment that
// must be separate processes.
func Self(args ...string) *exec.Cmd { return exec.Command("/proc/self/exe", args...) }

// killAll kills the host's processes and waits for their end.
func (h *Host) killAll() {
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.processes))
	h.mu.Unlock()
	for _, p := range all {
		p.Kill()
	}
	for _, p := range all {
		<-p.Done()
	}
}

func (h *Host) close() error {
	h.killAll()
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, ln := range h.listeners {
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if h.link != nil {
		h.link.Close()
	}
	return errors.Join(append(errs, h.ns.Close())...)
}
