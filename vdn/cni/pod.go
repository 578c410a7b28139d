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

// pod is an open network namespace. It exists until close, whatever happens to its path.
type pod struct {
	path string
	ns   ns.NetNS
	// links queries and changes the namespace from any thread.
	links *netlink.Handle
}

// errGone means that the namespace does not exist any more.
var errGone = errors.New("network namespace not found")

// openPod returns errGone, wrapped, if the path does not exist or is no longer a namespace.
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

// run runs f on a thread in the namespace.
func (p *pod) run(f func() error) error { return p.ns.Do(func(ns.NetNS) error { return f() }) }

// stillThere returns an error if the path no longer refers to the namespace.
func (p *pod) stillThere() error {
	if p.isAt(p.path) {
		return nil
	}
	return vanished(p.path)
}

// isAt reports whether a path refers to the namespace.
func (p *pod) isAt(path string) bool {
	var there, held unix.Stat_t
	return unix.Stat(path, &there) == nil && unix.Fstat(int(p.ns.Fd()), &held) == nil && there.Ino == held.Ino && there.Dev == held.Dev
}

func vanished(path string) error {
	return fail(types.ErrUnknownContainer, "netns %s: the container's network namespace is gone: the pod was deleted, nothing to do", path)
}

// mark begins the alias of an attachment's device: "fairlead ID", followed by its name on
// the node for a NIC. `ip link` shows it.
const mark = "fairlead "

// marked parses an alias.
func marked(l netlink.Link) (id, nicName string) {
	rest, ours := strings.CutPrefix(l.Attrs().Alias, mark)
	if !ours {
		return "", ""
	}
	id, nicName, _ = strings.Cut(rest, " ")
	return id, nicName
}

// absent reports whether an error means that a link does not exist.
func absent(err error) bool {
	var no netlink.LinkNotFoundError
	return errors.As(err, &no) || errors.Is(err, unix.ENODEV)
}

// handle returns a handle for the links of the calling thread's namespace, the node's.
func handle() (*netlink.Handle, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w: CAP_NET_ADMIN is required", err)
	}
	return h, nil
}

// ownNamespace is the calling thread's namespace, the node's.
const ownNamespace = "/proc/thread-self/ns/net"

func here() (*os.File, error) { return os.Open(ownNamespace) }
