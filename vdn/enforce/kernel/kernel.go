// Package kernel enforces virtually dedicated networks with Linux itself: HTB shares the
// rate of uplinks among slices. The programs of bpf/vdn.c classify packets for HTB and
// restrict each pod to its addresses, permissions and rate. Both outlive this process.
package kernel

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// Config configures a Kernel.
type Config struct {
	// PinDir is a directory on a BPF file system, one per network namespace.
	PinDir string
	// Uplinks are the devices whose rate the slices share.
	Uplinks []vdn.Uplink
	// Gateway also checks packets that enter through the uplinks.
	Gateway bool
	// Log receives messages; nil means slog's default.
	Log *slog.Logger
}

// Kernel implements enforce.Enforcer.
type Kernel struct {
	cfg  Config
	log  *slog.Logger
	home ns.NetNS

	mu     sync.Mutex
	dir    *bpffs.Dir
	shared sharedObjects
	hook   tc.Hook
	pods   map[string]*pod // by attachment ID
	plan   vdn.Plan        // the last plan to apply, for the names in counters
	// degraded describes the missing optional features.
	degraded []string
	// unstamped counts, by slice, packets that reached pods past an uplink's programs.
	unstamped map[uint16]uint64
}

var _ enforce.Enforcer = (*Kernel)(nil)

// sharedObjects are the programs and maps of a node.
type sharedObjects struct {
	UplinkOut  *ebpf.Program `ebpf:"uplink_out"`
	UplinkIn   *ebpf.Program `ebpf:"uplink_in"`
	PortIn     *ebpf.Program `ebpf:"port_in"`
	Prefixes   *ebpf.Map     `ebpf:"vdn_prefixes"`
	Reach      *ebpf.Map     `ebpf:"vdn_reach"`
	Outside    *ebpf.Map     `ebpf:"vdn_outside"`
	Refused    *ebpf.Map     `ebpf:"vdn_refused"`
	Namespaces *ebpf.Map     `ebpf:"vdn_namespaces"`
}

// sharedMaps are pinned and use bpfload.Refuse, because their sizes never differ.
var sharedMaps = bpfload.KeptMaps{vdnMapVdnPrefixes: {}, vdnMapVdnReach: {}, vdnMapVdnOutside: {}, vdnMapVdnRefused: {}, vdnMapVdnNamespaces: {}}

// history has the map layouts that past releases pin, as bpfload.Source requires.
//
//go:embed layouts.json
var history []byte

// ErrClosed is returned by a Kernel after Close or Remove.
var ErrClosed = errors.New("closed")

// Open loads the programs in the calling thread's network namespace, reusing the maps that
// a previous process left in PinDir, and replaces its programs. What it enforced stays in
// force until the first Apply.
func Open(cfg Config) (*Kernel, error) {
	k := &Kernel{cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), pods: map[string]*pod{}}
	if err := errors.Join(bpffs.Mount(cfg.PinDir), os.MkdirAll(filepath.Join(cfg.PinDir, podsFolder), 0o700)); err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	var err error
	if k.dir, err = bpffs.Open(cfg.PinDir); err != nil {
		return nil, err
	}
	if k.home, err = ns.GetCurrentNS(); err == nil {
		err = k.load()
	}
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kernel) load() error {
	spec, err := loadVdn()
	if err != nil {
		return err
	}
	state, err := openState(spec, k.dir, sharedMaps, k.shared.programs())
	if err != nil {
		return err
	}
	if err := spec.Variables[vdnVarGateway].Set(k.cfg.Gateway); err != nil {
		return err
	}
	unknown := findCookies(spec)
	opts := ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: k.cfg.PinDir}}
	missing, err := bpfload.Load(features.VDN, spec, opts, &k.shared, bpfload.ErrVersion)
	if err != nil {
		return err
	}
	k.degraded = degraded(missing, unknown)
	if _, err := state.Carry(); err != nil {
		return err
	}
	k.hook, err = k.shared.programs().TakeOver(state, k.dir, tc.Open)
	return err
}

// Degraded implements enforce.Enforcer.
func (k *Kernel) Degraded() []string { return k.degraded }

// programs returns the programs for uplinks and ports.
func (s sharedObjects) programs() tc.Programs {
	return tc.Programs{
		vdnProgUplinkOut: {Program: s.UplinkOut, Handle: 21},
		vdnProgUplinkIn:  {Program: s.UplinkIn, Handle: 22, Ingress: true},
		vdnProgPortIn:    {Program: s.PortIn, Handle: 25, Ingress: true},
	}
}

// openState marks maps to be pinned, next to maps that another release left.
func openState(spec *ebpf.CollectionSpec, dir *bpffs.Dir, kept bpfload.KeptMaps, programs tc.Programs) (*bpfload.State, error) {
	attached, err := programs.Attached(dir)
	if err != nil {
		return nil, err
	}
	return bpfload.OpenState(spec, bpfload.Source{Folder: dir.Path(""), Maps: kept, History: history, Attached: attached})
}

// Means implements enforce.Enforcer.
func (*Kernel) Means() enforce.Means { return means }

var means = enforce.Means{
	Name: "kernel", Guarantee: true, Cap: true, Access: true, Spoof: true, Errors: true,
	Notes: []string{
		"guarantee and max apply where packets leave through an uplink, counted as Ethernet frames without preamble and checksum; traffic between pods on one node is not limited",
		"a host's max is enforced by dropping; after an idle period, a burst of 100 ms is allowed",
		"pods cannot send or receive anything but IP and ARP; frames with VLAN tags are dropped, too",
		"all packets that a packet socket sends past its device's queues, and thus past the programs there (PACKET_QDISC_BYPASS, AF_XDP), are dropped at the device below (`bypassed`); an entire NIC (host-device) has no device below, so such frames pass",
		"a container with CAP_NET_ADMIN can detach its device's programs, or forge the mark of frames that passed them: do not grant it to untrusted containers",
		"another program at the ingress of an uplink that ends the chain there (TC_ACT_OK) keeps packets from getting the mark without which pods receive no broadcast; the node reports it",
		"with an XDP program in generic mode that supports fragments (xdp.frags) at an uplink, Linux 6.9 and later pass frames without their header to tc programs, and pods receive nothing: attach it in native mode",
		"packets for other pods, including broadcast of other networks, are dropped only after packet sockets have seen them",
		"link-local IPv6 is limited to neighbor discovery, with the address derived from the pod's MAC",
	},
}

// Apply implements enforce.Enforcer.
func (k *Kernel) Apply(ctx context.Context, p vdn.Plan) error {
	return k.do(func() error {
		k.plan = p
		links, missing := k.uplinks()
		return errors.Join(missing, k.applyTables(p.Slices), k.applyRates(links, p.Slices), k.applyPods(ctx, p, links))
	})
}

// do runs f in the home namespace, one call at a time.
func (k *Kernel) do(f func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dir == nil {
		return ErrClosed
	}
	return k.home.Do(func(ns.NetNS) error { return f() })
}

// uplink is an uplink that exists.
type uplink struct {
	vdn.Uplink
	link netlink.Link
}

// uplinks returns the uplinks that exist, and an error that names the others.
func (k *Kernel) uplinks() (found []uplink, missing error) {
	var errs []error
	for _, u := range k.cfg.Uplinks {
		link, err := netlink.LinkByName(u.Device)
		if err != nil {
			errs = append(errs, fmt.Errorf("uplink %s: %w: name a device of this node with --uplink", u.Device, err))
			continue
		}
		found = append(found, uplink{Uplink: u, link: link})
	}
	return found, errors.Join(errs...)
}

// hookPoints returns the attach points of the uplinks' programs, if there is something to
// check, and those of the programs at the devices below pods, which detect frames that
// bypass the programs of pods.
func (k *Kernel) hookPoints(links []uplink, slices []vdn.Slice, seats []seat) map[tc.Point]bool {
	points := map[tc.Point]bool{}
	for _, u := range links {
		if len(slices) == 0 {
			break
		}
		points[tc.Point{Device: u.link.Attrs().Index, Program: vdnProgUplinkOut}] = true
		if k.cfg.Gateway {
			points[tc.Point{Device: u.link.Attrs().Index, Program: vdnProgUplinkIn}] = true
		}
	}
	for _, s := range seats {
		for _, program := range s.guards() {
			points[tc.Point{Device: s.below, Program: program}] = true
		}
	}
	return points
}

// attachHooks attaches programs at points, and leaves others in place.
func (k *Kernel) attachHooks(points map[tc.Point]bool) error {
	all := maps.Clone(points)
	for _, p := range k.hook.Points() {
		all[p] = true
	}
	return k.hook.Keep(all)
}

// detachHooks detaches the programs that are not at points.
func (k *Kernel) detachHooks(points map[tc.Point]bool) error {
	if !slices.ContainsFunc(k.hook.Points(), func(p tc.Point) bool { return !points[p] }) {
		return nil
	}
	return k.hook.Keep(points)
}

// Close implements enforce.Enforcer.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.release()
}

func (k *Kernel) release() error {
	var errs []error
	for _, p := range k.pods {
		errs = append(errs, p.close())
	}
	if k.hook != nil {
		errs = append(errs, k.hook.Close())
	}
	for _, c := range []interface{ Close() error }{
		k.shared.UplinkOut, k.shared.UplinkIn, k.shared.PortIn,
		k.shared.Prefixes, k.shared.Reach, k.shared.Outside, k.shared.Refused, k.shared.Namespaces,
	} {
		errs = append(errs, c.Close())
	}
	if k.dir != nil {
		errs = append(errs, k.dir.Close())
	}
	if k.home != nil {
		errs = append(errs, k.home.Close())
	}
	k.pods, k.hook, k.dir, k.home, k.shared = nil, nil, nil, nil, sharedObjects{}
	return errors.Join(errs...)
}

// Remove implements enforce.Enforcer.
func (k *Kernel) Remove() error {
	err := k.do(func() error {
		return errors.Join(k.applyPods(context.Background(), vdn.Plan{}, nil), removeRates(nil))
	})
	if errors.Is(err, ErrClosed) {
		return err
	}
	return errors.Join(err, os.RemoveAll(k.cfg.PinDir), k.Close())
}
