package refuse_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// attempt is one use of the kernel.
type attempt struct {
	name string
	do   func() error
}

// attempts are made in this order in a fresh network namespace.
var attempts = []attempt{
	{"map-hash", func() error { return newMap(ebpf.Hash, 4, 4, 1) }},
	{"map-lruhash", func() error { return newMap(ebpf.LRUHash, 4, 4, 1) }},
	{"map-ringbuf", func() error { return newMap(ebpf.RingBuf, 0, 0, 4096) }},
	{"map-library", func() error {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 4096})
		m.Close()
		return err
	}},
	{"prog-socketfilter", load(ebpf.SocketFilter, 0, exit)},
	{"prog-xdp", load(ebpf.XDP, 0, exit)},
	{"prog-tracing", load(ebpf.Tracing, ebpf.AttachTraceFEntry, exit)},
	{"prog-peername", load(ebpf.CGroupSockAddr, ebpf.AttachCgroupInet4GetPeername, allowCode)},
	{"prog-connect", load(ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect, allowCode)},
	{"prog-ktime", load(ebpf.SocketFilter, 0, asm.Instructions{asm.FnKtimeGetNs.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return()})},
	{"prog-random", load(ebpf.SocketFilter, 0, asm.Instructions{asm.FnGetPrandomU32.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return()})},
	// Calls with the number of ktime_get_ns, 5, which are not helper calls.
	{"prog-kfunc", load(ebpf.SocketFilter, 0, calling(asm.PseudoKfuncCall))},
	{"prog-function", load(ebpf.SocketFilter, 0, calling(asm.PseudoCall))},
	{"test-run", withProgram(ebpf.SocketFilter, 0, exit, testRun)},
	{"attach-tcx", withProgram(ebpf.SchedCLS, ebpf.AttachTCXEgress, exit, func(prog int) error {
		return attach(unix.BPF_PROG_ATTACH, fields{0: loopback, 4: uint64(prog), 8: uint64(ebpf.AttachTCXEgress)})
	})},
	{"link-tcx", withProgram(ebpf.SchedCLS, ebpf.AttachTCXIngress, exit, linkOf(ebpf.AttachTCXIngress, 0))},
	{"link-xdp", withProgram(ebpf.XDP, 0, exit, linkOf(ebpf.AttachXDP, 0))},
	{"link-xdp-generic", withProgram(ebpf.XDP, 0, exit, linkOf(ebpf.AttachXDP, unix.XDP_FLAGS_SKB_MODE))},
	{"link-xdp-native", withProgram(ebpf.XDP, 0, exit, linkOf(ebpf.AttachXDP, unix.XDP_FLAGS_DRV_MODE))},
	{"iter-create", func() error { _, err := bpf(unix.BPF_ITER_CREATE, fields{0: 1 << 20}); return err }},
	{"btf-load", func() error { _, err := bpf(unix.BPF_BTF_LOAD, fields{}); return err }},
	{"nexthop", func() error { return nexthop(1).exchange(unix.NETLINK_ROUTE) }},
	{"nexthop-group", func() error { return nexthopGroup(2, 0).exchange(unix.NETLINK_ROUTE) }},
	{"nexthop-resilient", func() error { return resilientGroup(3).exchange(unix.NETLINK_ROUTE) }},
	{"nexthop-elsewhere", func() error { return nexthop(1).exchange(unix.NETLINK_GENERIC) }},
	{"nexthop-datagram", nexthopDatagram},
	{"qdisc-clsact", func() error {
		return netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: loopback, Parent: netlink.HANDLE_CLSACT, Handle: 0xffff0000}})
	}},
	{"qdisc-htb", func() error {
		return netlink.QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: loopback, Parent: netlink.HANDLE_ROOT}))
	}},
	{"qdisc-change", func() error { return qdiscHTB().exchange(unix.NETLINK_ROUTE) }},
	{"link-add", func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
	}},
	{"inet-diag", func() error { return openSocket(unix.NETLINK_INET_DIAG) }},
	{"inet-diag-destroy", func() error {
		return netlink.SocketDestroy(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2})
	}},
	{"netfilter", func() error { return openSocket(unix.NETLINK_NETFILTER) }},
	{"family-nlctrl", func() error { _, err := netlink.GenlFamilyGet("nlctrl"); return err }},
	{"family-ipvs", func() error { _, err := netlink.GenlFamilyGet("IPVS"); return err }},
}

const loopback = 1

// try makes attempts and prints each outcome.
func try() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	lo, err := netlink.LinkByIndex(loopback)
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return err
	}
	for _, a := range attempts {
		fmt.Println(a.name, outcome(a.do()))
	}
	return nil
}

func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return "failed"
}

// fields of a union bpf_attr, by offset. Values above 2³² take eight bytes.
type fields map[int]uint64

func bpf(cmd uintptr, f fields) (int, error) {
	var attr [128]byte
	for at, v := range f {
		if v>>32 == 0 {
			binary.NativeEndian.PutUint32(attr[at:], uint32(v))
		} else {
			binary.NativeEndian.PutUint64(attr[at:], v)
		}
	}
	for tries := 1; ; tries++ {
		fd, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		switch {
		case errno == unix.EAGAIN && tries < 30: // from the verifier, if a signal is pending
			continue
		case errno != 0:
			return -1, errno
		}
		return int(fd), nil
	}
}

func newMap(kind ebpf.MapType, key, value, entries uint64) error {
	return attach(unix.BPF_MAP_CREATE, fields{0: uint64(kind), 4: key, 8: value, 12: entries})
}

// attach closes what it has created.
func attach(cmd uintptr, f fields) error {
	fd, err := bpf(cmd, f)
	if err == nil && cmd != unix.BPF_PROG_ATTACH {
		unix.Close(fd)
	}
	return err
}

var (
	exit      = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	allowCode = asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}
)

func calling(what asm.Register) asm.Instructions {
	call := asm.FnKtimeGetNs.Call()
	call.Src = what
	return append(asm.Instructions{call}, exit...)
}

func withProgram(kind ebpf.ProgramType, expected ebpf.AttachType, code asm.Instructions, use func(fd int) error) func() error {
	return func() error {
		text := make([]byte, 0, len(code)*8)
		for _, i := range code {
			text = append(text, byte(i.OpCode), byte(i.Src<<4|i.Dst))
			text = binary.NativeEndian.AppendUint16(text, uint16(i.Offset))
			text = binary.NativeEndian.AppendUint32(text, uint32(i.Constant))
		}
		license := []byte("GPL\x00")
		fd, err := bpf(unix.BPF_PROG_LOAD, fields{0: uint64(kind), 4: uint64(len(code)),
			8: uint64(uintptr(unsafe.Pointer(&text[0]))), 16: uint64(uintptr(unsafe.Pointer(&license[0]))), 68: uint64(expected)})
		runtime.KeepAlive(text)
		runtime.KeepAlive(license)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return use(fd)
	}
}

func load(kind ebpf.ProgramType, expected ebpf.AttachType, code asm.Instructions) func() error {
	return withProgram(kind, expected, code, func(int) error { return nil })
}

func linkOf(kind ebpf.AttachType, flags uint64) func(prog int) error {
	return func(prog int) error {
		return attach(unix.BPF_LINK_CREATE, fields{0: uint64(prog), 4: loopback, 8: uint64(kind), 12: flags})
	}
}

func testRun(prog int) error {
	frame := make([]byte, 64)
	_, err := bpf(unix.BPF_PROG_TEST_RUN, fields{0: uint64(prog), 8: uint64(len(frame)), 16: uint64(uintptr(unsafe.Pointer(&frame[0])))})
	runtime.KeepAlive(frame)
	return err
}

// fixed is the header before a message's attributes.
type fixed []byte

func (f fixed) Len() int          { return len(f) }
func (f fixed) Serialize() []byte { return f }

// request is a netlink message.
type request struct{ *nl.NetlinkRequest }

func newRequest(kind, flags int, header []byte, attributes ...*nl.RtAttr) request {
	r := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	r.AddData(fixed(header))
	for _, a := range attributes {
		r.AddData(a)
	}
	return request{r}
}

const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL

func nexthop(id uint32) request {
	return newRequest(unix.RTM_NEWNEXTHOP, create, []byte{unix.AF_INET, 0, 0, 0, 0, 0, 0, 0},
		nl.NewRtAttr(unix.NHA_ID, nl.Uint32Attr(id)), nl.NewRtAttr(unix.NHA_BLACKHOLE, nil))
}

// nexthopGroup has only nexthop 1.
func nexthopGroup(id uint32, kind uint16) request {
	return newRequest(unix.RTM_NEWNEXTHOP, create, make([]byte, 8),
		nl.NewRtAttr(unix.NHA_ID, nl.Uint32Attr(id)), nl.NewRtAttr(unix.NHA_GROUP, append(nl.Uint32Attr(1), 0, 0, 0, 0)),
		nl.NewRtAttr(unix.NHA_GROUP_TYPE, nl.Uint16Attr(kind)))
}

func resilientGroup(id uint32) request {
	r := nexthopGroup(id, 1)
	const resGroup, resGroupBuckets = 12, 1 // NHA_RES_GROUP, NHA_RES_GROUP_BUCKETS
	buckets := nl.NewRtAttr(resGroup|unix.NLA_F_NESTED, nil)
	buckets.AddRtAttr(resGroupBuckets, nl.Uint16Attr(4))
	r.AddData(buckets)
	return r
}

// qdiscHTB replaces the existing root qdisc.
func qdiscHTB() request {
	msg := &nl.TcMsg{Ifindex: loopback, Parent: netlink.HANDLE_ROOT}
	return newRequest(unix.RTM_NEWQDISC, unix.NLM_F_REPLACE, msg.Serialize(), nl.NewRtAttr(unix.TCA_KIND, nl.ZeroTerminated("htb")))
}

// exchange sends several pieces with sendmsg(2), and returns the kernel's answer.
func (r request) exchange(protocol int) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b := r.Serialize()
	if _, err := unix.SendmsgBuffers(fd, [][]byte{b[:7], {}, b[7:20], b[20:]}, nil, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}, 0); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		return err
	}
	if errno := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}

// nexthopDatagram sends something that looks like a netlink message to another kind of
// socket.
func nexthopDatagram() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	return unix.Sendmsg(pair[0], nexthop(1).Serialize(), nil, nil, 0)
}

func openSocket(protocol int) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err == nil {
		unix.Close(fd)
	}
	return err
}
