package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/features"
)

// ownMount is where the cgroup hierarchy is mounted if it is not mounted yet.
const ownMount = "/run/fairlead/cgroup2"

// findCgroup returns the root of the cgroup version 2 hierarchy, and mounts it if
// necessary.
func findCgroup() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// proc_pid_mountinfo(5): "... root mountpoint options... - type source
		// ..."
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !strings.HasPrefix(after, "cgroup2 ") || len(fields) < 5 || fields[3] != "/" {
			continue
		}
		path := unescape.Replace(fields[4])
		if _, err := cgroupID(path); err == nil { // else another mount hides it
			return path, checkRoot(path)
		}
	}
	if err := os.MkdirAll(ownMount, 0o700); err != nil {
		return "", err
	}
	if err := unix.Mount("cgroup2", ownMount, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return "", fmt.Errorf("mount cgroup2 on %s: %w: mount one beforehand, or run as root", ownMount, err)
	}
	return ownMount, checkRoot(ownMount)
}

// checkRoot distinguishes the root from that of a cgroup namespace: only other cgroups
// have a type (cgroups(7)).
func checkRoot(path string) error {
	if _, err := os.Stat(filepath.Join(path, "cgroup.type")); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is not the root of all cgroups: run in the host's cgroup namespace, or name the cgroup (Cgroup)", path)
	}
	return nil
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// hook is a program and its attach type.
type hook struct {
	name    string // of the program
	program *ebpf.Program
	at      ebpf.AttachType
}

// hooksOf returns the programs for replies first: replies of an endpoint must be
// translated from the start.
func hooksOf(p proxyPrograms) []hook {
	return []hook{
		{proxyProgRecvmsg4, p.Recvmsg4, ebpf.AttachCGroupUDP4Recvmsg},
		{proxyProgRecvmsg6, p.Recvmsg6, ebpf.AttachCGroupUDP6Recvmsg},
		{proxyProgGetpeername4, p.Getpeername4, ebpf.AttachCgroupInet4GetPeername},
		{proxyProgGetpeername6, p.Getpeername6, ebpf.AttachCgroupInet6GetPeername},
		{proxyProgConnect4, p.Connect4, ebpf.AttachCGroupInet4Connect},
		{proxyProgConnect6, p.Connect6, ebpf.AttachCGroupInet6Connect},
		{proxyProgSendmsg4, p.Sendmsg4, ebpf.AttachCGroupUDP4Sendmsg},
		{proxyProgSendmsg6, p.Sendmsg6, ebpf.AttachCGroupUDP6Sendmsg},
	}
}

// hooks are the programs' links to a cgroup, pinned.
type hooks struct {
	pins   *bpffs.Dir
	cgroup string
	links  []attached
}

// attached is the link of a program.
type attached struct {
	link.Link
	name string
}

const (
	linkPrefix = "link_"
	newLink    = "new_link"
)

// attach replaces a predecessor's programs, each in one step, or attaches them if a
// predecessor left none.
func attach(pins *bpffs.Dir, cgroup string, programs proxyPrograms) (*hooks, error) {
	if cgroup == "" {
		var err error
		if cgroup, err = findCgroup(); err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
	}
	id, err := cgroupID(cgroup)
	if err != nil {
		return nil, err
	}
	if err := pins.Remove(newLink); err != nil { // left by a killed agent
		return nil, err
	}
	h := &hooks{pins: pins, cgroup: cgroup}
	for _, hook := range hooksOf(programs) {
		if hook.program == nil {
			continue // the kernel does not support this optional one
		}
		l, err := h.replace(hook, id)
		if err == nil && l == nil {
			l, err = h.attach(hook)
		}
		if err != nil {
			return nil, errors.Join(features.Refused(features.SocketProxy, fmt.Sprintf("attach %s to cgroup %s", hook.name, cgroup), err), h.close())
		}
		h.links = append(h.links, attached{l, hook.name})
	}
	return h, nil
}

// cgroupID returns the kernel's number of a cgroup: its inode (kernfs_node_id).
func cgroupID(path string) (uint64, error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Statfs(path, &fs), unix.Stat(path, &st)); err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", path, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("cgroup %s: not a folder of cgroup version 2", path)
	}
	return st.Ino, nil
}

// replace returns the link that a predecessor pinned, with this program; nil if no
// pin for this cgroup exists.
func (h *hooks) replace(hook hook, cgroup uint64) (link.Link, error) {
	l, err := link.LoadPinnedLink(h.pins.Path(linkPrefix+hook.name), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := l.Info()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if at := info.Cgroup(); at == nil || at.CgroupId != cgroup {
		return nil, l.Close() // attach replaces its pin
	}
	if err := l.Update(hook.program); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// attach attaches a program and pins the link, replacing an older one to another cgroup.
func (h *hooks) attach(hook hook) (link.Link, error) {
	l, err := link.AttachCgroup(link.CgroupOptions{Path: h.cgroup, Attach: hook.at, Program: hook.program})
	if err != nil {
		return nil, err
	}
	if err = l.Pin(h.pins.Path(newLink)); err == nil {
		err = os.Rename(h.pins.Path(newLink), h.pins.Path(linkPrefix+hook.name))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (h *hooks) describe() []string {
	return []string{fmt.Sprintf("cgroup %s: %d programs", h.cgroup, len(h.links))}
}

// detach removes the programs from the kernel, first those that direct traffic to
// endpoints.
func (h *hooks) detach() error {
	var errs []error
	for _, l := range slices.Backward(h.links) {
		errs = append(errs, h.pins.Remove(linkPrefix+l.name), l.Close())
	}
	h.links = nil
	return errors.Join(errs...)
}

// close closes the links. Programs stay attached.
func (h *hooks) close() error {
	var errs []error
	for _, l := range h.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
