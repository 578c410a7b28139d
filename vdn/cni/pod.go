package cni

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// pod is a network namespace, held open: it lives until close, whatever becomes of
// its path.
type pod struct {
	path string
	ns   ns.NetNS
	// links asks and changes its kernel's state from any thread.
	links *netlink.Handle
}

// errGone is that there is no such namespace any more.
var errGone = errors.New("no network namespace there")

// openPod gives errGone, wrapped, where there is nothing at the path, or no
// namespace any more.
func openPod(path string) (*pod, error) {
	if path == "" {
		return nil, errGone
	}
	opened, err := ns.GetNS(path)
	if err != nil {
		var absent ns.NSPathNotExistErr
		var other ns.NSPathNotNSErr
		if errors.As(err, &absent) || errors.As(err, &other) {
			err = fmt.Errorf("%w: %w", errGone, err)
		}
		return nil, err
	}
	links, err := netlink.NewHandleAt(netns.NsHandle(opened.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		opened.Close()
		return nil, fmt.Errorf("netlink in %s: %w", path, err)
	}
	return &pod{path, opened, links}, nil
}

func (p *pod) close() {
	p.links.Close()
	p.ns.Close()
}

// run runs f with its thread there.
func (p *pod) run(f func() error) error { return p.ns.Do(func(ns.NetNS) error { return f() }) }

// stillThere says whether the path still leads to the namespace.
func (p *pod) stillThere() error {
	if p.isAt(p.path) {
		return nil
	}
	return vanished(p.path)
}

// isAt says whether a path leads to the namespace.
func (p *pod) isAt(path string) bool {
	var there, held unix.Stat_t
	return unix.Stat(path, &there) == nil && unix.Fstat(int(p.ns.Fd()), &held) == nil && there.Ino == held.Ino && there.Dev == held.Dev
}

func vanished(path string) error {
	return fail(types.ErrUnknownContainer, "netns %s: the container's network namespace is gone: its pod was deleted meanwhile, and nothing is left to do", path)
}

// mark is the alias of a device that an attachment has: "fairlead ID", of a NIC
// with its name on the node behind. `ip link` shows it.
const mark = "fairlead "

// marked reads an alias.
func marked(l netlink.Link) (id, nicName string) {
	rest, ours := strings.CutPrefix(l.Attrs().Alias, mark)
	if !ours {
		return "", ""
	}
	id, nicName, _ = strings.Cut(rest, " ")
	return id, nicName
}

// absent says that a link is not there.
func absent(err error) bool {
	var no netlink.LinkNotFoundError
	return errors.As(err, &no) || errors.Is(err, unix.ENODEV)
}

// handle is for the links of the calling thread's namespace: the node's.
func handle() (*netlink.Handle, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w: do you have CAP_NET_ADMIN?", err)
	}
	return h, nil
}

// ownNamespace is the calling thread's: the node's.
const ownNamespace = "/proc/thread-self/ns/net"

func here() (*os.File, error) { return os.Open(ownNamespace) }
