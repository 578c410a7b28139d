package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// podsFolder contains a directory of pins for each attachment, with a symbolic link
// netnsPin to the path of its namespace.
const (
	podsFolder = "pods"
	netnsPin   = "netns"
)

// folderOf returns the directory name of an attachment: names on a BPF file system cannot
// contain dots.
func folderOf(id string) string {
	return strings.NewReplacer("_", "__", ".", "_d", "/", "_s").Replace(id)
}

// pod is an enforced attachment: programs with its identity.
type pod struct {
	att  vdn.Attachment
	self vdnVdnPod
	port int // the node's end of its veth pair; 0 if it has none
	dir  *bpffs.Dir
	obj  podObjects
	// state is nil once the programs have replaced those of a previous process.
	state *bpfload.State
}

type podObjects struct {
	Out     *ebpf.Program `ebpf:"pod_out"`
	In      *ebpf.Program `ebpf:"pod_in"`
	Buckets *ebpf.Map     `ebpf:"pod_buckets"`
	Counts  *ebpf.Map     `ebpf:"pod_counts"`
}

// podMaps outlive the process.
var podMaps = bpfload.KeptMaps{vdnMapPodBuckets: {}, vdnMapPodCounts: {}}

// applyPods attaches programs at the devices of the plan's attachments and below them, and
// at no others. Those below are attached first and detached last: pods receive broadcast
// only if it passed them.
func (k *Kernel) applyPods(ctx context.Context, p vdn.Plan, links []uplink) error {
	seats, keep, err := k.seats(ctx, p)
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	points := k.hookPoints(links, p.Slices, seats)
	errs := []error{err, k.attachHooks(points)}
	var enforced []seat
	for _, s := range seats {
		switch err := k.applyPod(s); {
		case gone(err):
			k.log.Debug("vdn: a namespace is gone", "attachment", s.att.ID, "netns", s.att.NetNS)
		case err != nil:
			errs = append(errs, &enforce.AttachmentError{ID: s.att.ID, Err: err})
		default:
			enforced = append(enforced, s)
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	return errors.Join(append(errs, k.applyNamespaces(enforced), k.removePods(keep), k.detachHooks(points), k.stampsHold())...)
}

// seats finds the devices of the plan's attachments. keep has the directories of all,
// including those whose namespace is gone: that is not an error, because the attachment
// will go too.
func (k *Kernel) seats(ctx context.Context, p vdn.Plan) (seats []seat, keep map[string]bool, err error) {
	slices := enforce.ByName(p.Slices)
	var errs []error
	keep = map[string]bool{}
	for _, att := range p.Local {
		if att.NetNS == "" || ctx.Err() != nil {
			continue // no device yet
		}
		slice, known := slices[att.Network]
		if !known {
			errs = append(errs, &enforce.AttachmentError{ID: att.ID, Err: fmt.Errorf("network %s is not in the plan", att.Network)})
			continue
		}
		keep[folderOf(att.ID)] = true
		s, err := look(att, slice)
		switch {
		case gone(err):
			k.log.Debug("vdn: a namespace is gone", "attachment", att.ID, "netns", att.NetNS)
		case err != nil:
			errs = append(errs, &enforce.AttachmentError{ID: att.ID, Err: err})
		default:
			seats = append(seats, s)
		}
	}
	return seats, keep, errors.Join(errs...)
}

// applyPod applies an attachment in its namespace.
func (k *Kernel) applyPod(s seat) error {
	return ns.WithNetNSPath(s.att.NetNS, func(ns.NetNS) error {
		p, err := k.podOf(s)
		if err != nil {
			return err
		}
		p.port = s.port()
		sends, receives := s.limits()
		if err := p.limit(map[vdnPodWay]vdn.Rate{vdnPodWayPOD_SENDS: sends, vdnPodWayPOD_RECEIVES: receives}); err != nil {
			return err
		}
		return errors.Join(p.hold(s.link.Attrs().Index), s.guaranteed())
	})
}

// podOf returns the known pod, or loads its programs.
func (k *Kernel) podOf(s seat) (*pod, error) {
	self, err := identity(s)
	if err != nil {
		return nil, err
	}
	if p := k.pods[s.att.ID]; p != nil {
		if p.self == self && p.att.NetNS == s.att.NetNS {
			return p, nil
		}
		delete(k.pods, s.att.ID)
		if err := p.close(); err != nil {
			return nil, err
		}
	}
	p := &pod{att: s.att, self: self}
	if err := p.load(filepath.Join(k.cfg.PinDir, podsFolder, folderOf(s.att.ID)), k.shared); err != nil {
		return nil, errors.Join(err, p.close())
	}
	k.pods[s.att.ID] = p
	return p, nil
}

// identity returns what a pod's programs know about it.
func identity(s seat) (self vdnVdnPod, err error) {
	att, mac := s.att, s.link.Attrs().HardwareAddr
	if att.MAC != "" {
		if mac, err = net.ParseMAC(att.MAC); err != nil {
			return self, err
		}
	}
	if len(mac) != len(self.Mac) {
		return self, fmt.Errorf("device %s: no Ethernet: MAC address %q", att.Interface, mac)
	}
	copy(self.Mac[:], mac)
	self.Slice = s.slice.ID
	self.SharesBroadcast, self.SharesAll = s.shares()
	if len(att.Addresses) > len(self.Address) {
		return self, fmt.Errorf("%d addresses: %d are the most", len(att.Addresses), len(self.Address))
	}
	for i, a := range att.Addresses {
		self.Address[i].Word = words(a.Addr())
	}
	return self, nil
}

func words(a netip.Addr) [4]uint32 { return netorder.Words(a.Unmap()) }

func (p *pod) load(folder string, shared sharedObjects) (err error) {
	if p.dir, err = bpffs.Open(folder); err != nil {
		return err
	}
	if at, _ := os.Readlink(p.dir.Path(netnsPin)); at != p.att.NetNS {
		if err := errors.Join(p.dir.Remove(netnsPin), os.Symlink(p.att.NetNS, p.dir.Path(netnsPin))); err != nil {
			return err
		}
	}
	spec, err := loadVdn()
	if err != nil {
		return err
	}
	if err := spec.Variables[vdnVarPod].Set(p.self); err != nil {
		return err
	}
	if p.state, err = openState(spec, p.dir, podMaps, p.programs()); err != nil {
		return err
	}
	_, err = bpfload.Load(features.VDN, spec, ebpf.CollectionOptions{
		Maps: ebpf.MapOptions{PinPath: folder},
		MapReplacements: map[string]*ebpf.Map{
			vdnMapVdnPrefixes: shared.Prefixes, vdnMapVdnReach: shared.Reach, vdnMapVdnOutside: shared.Outside, vdnMapVdnRefused: shared.Refused,
		},
	}, &p.obj, bpfload.ErrVersion)
	if err != nil {
		return err
	}
	_, err = p.state.Carry()
	return err
}

// programs returns the pod's programs with their filter handles.
func (p *pod) programs() tc.Programs {
	return tc.Programs{
		vdnProgPodOut: {Program: p.obj.Out, Handle: 23},
		vdnProgPodIn:  {Program: p.obj.In, Handle: 24, Ingress: true},
	}
}

// hold attaches the programs to the device, in the calling thread's namespace. It closes
// the hook immediately, because an open hook may keep the namespace alive.
func (p *pod) hold(device int) error {
	hook, err := p.open()
	if err != nil {
		return err
	}
	return errors.Join(hook.Keep(map[tc.Point]bool{
		{Device: device, Program: vdnProgPodOut}: true, {Device: device, Program: vdnProgPodIn}: true,
	}), hook.Close())
}

// open finds the programs at the device, in the calling thread's namespace, and replaces
// them with these the first time.
func (p *pod) open() (tc.Hook, error) {
	if p.state == nil {
		return tc.Open(p.dir, p.programs())
	}
	hook, err := p.programs().TakeOver(p.state, p.dir, tc.Open)
	if err == nil {
		p.state = nil
	}
	return hook, err
}

// limit sets the rates that the pod may send and receive.
func (p *pod) limit(most map[vdnPodWay]vdn.Rate) error {
	for way, rate := range most {
		var b vdnVdnBucket
		if err := p.obj.Buckets.Lookup(uint32(way), &b); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		if b.Rate == uint64(rate) {
			continue
		}
		b.Rate = uint64(rate)
		if err := p.obj.Buckets.Put(uint32(way), b); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
	}
	return nil
}

func (p *pod) close() error {
	var errs []error
	for _, c := range []interface{ Close() error }{p.obj.Out, p.obj.In, p.obj.Buckets, p.obj.Counts} {
		errs = append(errs, c.Close())
	}
	if p.dir != nil {
		errs = append(errs, p.dir.Close())
	}
	return errors.Join(errs...)
}

// removePods removes the pins of attachments, ours or a previous process's, except the
// directories to keep.
func (k *Kernel) removePods(keep map[string]bool) error {
	folders, err := os.ReadDir(filepath.Join(k.cfg.PinDir, podsFolder))
	errs := []error{err}
	for id, p := range k.pods {
		if !keep[folderOf(id)] {
			delete(k.pods, id)
			errs = append(errs, p.close())
		}
	}
	for _, f := range folders {
		if !keep[f.Name()] {
			errs = append(errs, removePod(filepath.Join(k.cfg.PinDir, podsFolder, f.Name())))
		}
	}
	return errors.Join(errs...)
}

// removePod detaches the programs of one directory from their device and removes the
// directory.
func removePod(folder string) error {
	dir, err := bpffs.Open(folder)
	if err != nil {
		return err
	}
	at, _ := os.Readlink(dir.Path(netnsPin))
	off := func(ns.NetNS) error {
		return errors.Join(tc.RemoveLinks(dir), tc.RemoveFilters(vdnProgPodOut, vdnProgPodIn))
	}
	err = ns.WithNetNSPath(at, off)
	if gone(err) {
		// The namespace's filters are gone with it. So are links, but they are still
		// pinned.
		err = tc.RemoveLinks(dir)
	}
	if err != nil {
		return errors.Join(err, dir.Close()) // keep the pins for the next attempt
	}
	return dir.RemoveAll()
}

// gone reports whether an error of ns.WithNetNSPath means that the namespace does not
// exist.
func gone(err error) bool {
	var missing ns.NSPathNotExistErr
	var other ns.NSPathNotNSErr
	return errors.As(err, &missing) || errors.As(err, &other) || errors.Is(err, fs.ErrNotExist)
}

// Clean removes what a Kernel left on a node, in the calling thread's network namespace. It
// succeeds if nothing is there.
func Clean(pinDir string) error {
	if _, err := os.Stat(pinDir); errors.Is(err, fs.ErrNotExist) {
		return removeRates(nil)
	}
	dir, err := bpffs.Open(pinDir)
	if err != nil {
		return err
	}
	k := &Kernel{cfg: Config{PinDir: pinDir}}
	return errors.Join(k.removePods(nil), tc.RemoveLinks(dir), tc.RemoveFilters(vdnProgUplinkOut, vdnProgUplinkIn, vdnProgPortIn),
		removeRates(nil), dir.RemoveAll())
}
