package features

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrCannotTry is wrapped by probes that have no network namespace to try a feature in. It
// says nothing about the feature.
var ErrCannotTry = errors.New("not tried: no network namespace to try it in")

// inScratch runs f in a separate network namespace, which is destroyed afterwards, so that
// probes have no side effects.
func inScratch(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // permanently: the thread and its namespace end with the goroutine
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("%w: %w", ErrCannotTry, err)
			}
			lo, err := netlink.LinkByName("lo")
			if err == nil {
				err = netlink.LinkSetUp(lo)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", ErrCannotTry, err)
			}
			return f()
		}()
	}()
	return <-result
}

// loopback is the index of lo in every network namespace.
const loopback = 1

// probeTCX attaches a program to lo of a scratch namespace.
func probeTCX(at ebpf.AttachType) error {
	return withProgram(ebpf.SchedCLS, func(p *ebpf.Program) error {
		return inScratch(func() error {
			l, err := link.AttachTCX(link.TCXOptions{Interface: loopback, Program: p, Attach: at})
			if err != nil {
				return err
			}
			return l.Close()
		})
	})
}

func withProgram(t ebpf.ProgramType, f func(*ebpf.Program) error) error {
	p, err := ebpf.NewProgram(smallest(t))
	if err != nil {
		return err
	}
	defer p.Close()
	return f(p)
}

// probeLinks attaches an XDP program to lo with a BPF link.
func probeLinks() error {
	return withProgram(ebpf.XDP, func(p *ebpf.Program) error {
		return inScratch(func() error { return attachXDP(p, loopback, link.XDPGenericMode) })
	})
}

func attachXDP(p *ebpf.Program, device int, flags link.XDPAttachFlags) error {
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: device, Flags: flags})
	if err != nil {
		return err
	}
	return l.Close()
}

// probeNativeXDP attaches a program to a veth's driver. Whether a NIC's driver supports it
// can only be tested with that NIC.
func probeNativeXDP() error {
	return withProgram(ebpf.XDP, func(p *ebpf.Program) error {
		return inScratch(func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "probe0"
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "probe1"}); err != nil {
				return fmt.Errorf("%w: %w", ErrCannotTry, err)
			}
			dev, err := net.InterfaceByName("probe0")
			if err != nil {
				return err
			}
			return attachXDP(p, dev.Index, link.XDPDriverMode)
		})
	})
}

// probeTestRun runs a program on a frame.
func probeTestRun() error {
	return withProgram(ebpf.XDP, func(p *ebpf.Program) error {
		_, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
		return err
	})
}

// probeBatch updates and reads a map with batch operations.
func probeBatch() error {
	m, err := ebpf.NewMap(smallestMap(ebpf.Hash))
	if err != nil {
		return err
	}
	defer m.Close()
	if _, err := m.BatchUpdate([]uint32{1}, []uint32{2}, nil); err != nil {
		return err
	}
	var cursor ebpf.MapBatchCursor
	_, err = m.BatchLookup(&cursor, make([]uint32, 1), make([]uint32, 1), nil)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil // end of the map
	}
	return err
}

// probeBTF loads a type.
func probeBTF() error {
	b, err := btf.NewBuilder([]btf.Type{&btf.Int{Name: "int", Size: 4}}, nil)
	if err != nil {
		return err
	}
	h, err := btf.NewHandle(b)
	if err != nil {
		return err
	}
	return h.Close()
}

// Constants of <linux/nexthop.h> that no package has.
const (
	nhaID        = 1
	nhaGroup     = 2
	nhaGroupType = 3
	nhaBlackhole = 4
	nhaResGroup  = 12
	nhaBuckets   = 1
	resilient    = 1
)

// nhmsg is struct nhmsg.
type nhmsg struct{ family uint8 }

func (nhmsg) Len() int { return 8 }

func (m nhmsg) Serialize() []byte { return []byte{m.family, 0, 0, 0, 0, 0, 0, 0} }

func newNextHop(family uint8, attrs ...*nl.RtAttr) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	req.AddData(nhmsg{family})
	for _, a := range attrs {
		req.AddData(a)
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func addBlackhole() error {
	return newNextHop(unix.AF_INET, nl.NewRtAttr(nhaID, nl.Uint32Attr(1)), nl.NewRtAttr(nhaBlackhole, nil))
}

func probeNextHop() error { return inScratch(addBlackhole) }

// probeResilientGroup creates a group of one next hop through lo: such a group cannot
// contain a blackhole.
func probeResilientGroup() error {
	return inScratch(func() error {
		const oif = 5 // NHA_OIF
		hop := []*nl.RtAttr{nl.NewRtAttr(nhaID, nl.Uint32Attr(1)), nl.NewRtAttr(oif, nl.Uint32Attr(loopback))}
		if err := newNextHop(unix.AF_INET, hop...); err != nil {
			return err
		}
		member := binary.NativeEndian.AppendUint32(nil, 1)
		member = append(member, 0, 0, 0, 0) // weight 1, reserved
		buckets := nl.NewRtAttr(nhaResGroup|unix.NLA_F_NESTED, nil)
		buckets.AddRtAttr(nhaBuckets, nl.Uint16Attr(8))
		return newNextHop(unix.AF_UNSPEC, nl.NewRtAttr(nhaID, nl.Uint32Attr(2)), nl.NewRtAttr(nhaGroup, member),
			nl.NewRtAttr(nhaGroupType, nl.Uint16Attr(resilient)), buckets)
	})
}

func probeHTB() error {
	return inScratch(func() error {
		return netlink.QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{
			LinkIndex: loopback, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}))
	})
}

func probeClsact() error {
	return inScratch(func() error {
		return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: loopback, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}})
	})
}

// probeIPVS queries the family, which loads the module if there is one.
func probeIPVS() error {
	_, err := netlink.GenlFamilyGet("IPVS")
	return err
}

// Constants of <linux/inet_diag.h> and <linux/sock_diag.h> that no package has.
const (
	sockDestroy    = 21 // SOCK_DESTROY
	diagRequestLen = 56 // struct inet_diag_req_v2
	diagCookieAt   = 48 // offset of idiag_cookie in it
)

// probeSocketDestroy requests to destroy a UDP socket that cannot exist.
func probeSocketDestroy() error {
	return inScratch(func() error {
		b := make([]byte, diagRequestLen)
		b[0], b[1] = unix.AF_INET, unix.IPPROTO_UDP
		binary.NativeEndian.PutUint64(b[diagCookieAt:], 1)
		req := nl.NewNetlinkRequest(sockDestroy, unix.NLM_F_ACK)
		req.AddRawData(b)
		if _, err := req.Execute(unix.NETLINK_INET_DIAG, 0); !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	})
}
