package lab

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/testkit"
)

// echoType is the Ethernet type that echo programs answer, for local experiments (IEEE
// 802), in network order.
var echoType = [2]byte{0x88, 0xb5}

// echo swaps a frame's addresses and ends with the given instructions.
func echo(end ...bpfInsn) []bpfInsn {
	const (
		load32, load16   = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W, unix.BPF_LDX | unix.BPF_MEM | unix.BPF_H
		store32, store16 = unix.BPF_STX | unix.BPF_MEM | unix.BPF_W, unix.BPF_STX | unix.BPF_MEM | unix.BPF_H
		mov, add         = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_X, unix.BPF_ALU64 | unix.BPF_ADD | unix.BPF_K
		jumpGreater      = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_X
		jumpNot          = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
	)
	regs := func(dst, src byte) byte { return src<<4 | dst }
	program := []bpfInsn{
		{code: mov, regs: regs(6, 1)},
		{code: load32, regs: regs(2, 1)},         // data
		{code: load32, regs: regs(3, 1), off: 4}, // data_end
		{code: mov, regs: regs(4, 2)},
		{code: add, regs: regs(4, 0), imm: 14},
		{code: jumpGreater, regs: regs(4, 3), off: 10 + int16(len(end))},
		{code: load16, regs: regs(5, 2), off: 12},
		{code: jumpNot, regs: regs(5, 0), off: 8 + int16(len(end)), imm: int32(echoType[1])<<8 | int32(echoType[0])},
		{code: load32, regs: regs(7, 2)},
		{code: load16, regs: regs(8, 2), off: 4},
		{code: load32, regs: regs(9, 2), off: 6},
		{code: load16, regs: regs(0, 2), off: 10},
		{code: store32, regs: regs(2, 9)},
		{code: store16, regs: regs(2, 0), off: 4},
		{code: store32, regs: regs(2, 7), off: 6},
		{code: store16, regs: regs(2, 8), off: 10},
	}
	return append(append(program, end...), passProgram...)
}

var (
	exitInsn = bpfInsn{code: unix.BPF_JMP | unix.BPF_EXIT}
	// bpf_redirect(ctx->ingress_ifindex, 0)
	echoRedirect = echo(
		bpfInsn{code: unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W, regs: 6<<4 | 1, off: 12},
		bpfInsn{code: unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K, regs: 2},
		bpfInsn{code: unix.BPF_JMP | unix.BPF_CALL, imm: 23},
		exitInsn,
	)
)

// What a pod's XDP program redirects back reaches the other end of the link, over plain
// and cuttable links.
func TestEndsForXDPTakeWhatTheirPeersSend(t *testing.T) {
	for _, cuttable := range []bool{false, true} {
		t.Run(fmt.Sprint("cuttable ", cuttable), func(t *testing.T) {
			l, err := Build(t.Context(), Topology{
				Hosts: []HostSpec{{Name: "node"}, {Name: "pod"}},
				Links: []Link{{A: At("node", "pod0").ForXDP(), B: At("pod", "eth0"), Cuttable: cuttable}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			pod := l.Host("pod")
			dev, err := pod.Netlink().LinkByName("eth0")
			if err != nil {
				t.Fatal(err)
			}
			if err := attachXDP(pod.ns, dev, echoRedirect); err != nil {
				t.Fatal(err)
			}
			expectEcho(t, l.Host("node"), dev.Attrs().HardwareAddr)
		})
	}
}

// expectEcho sends a frame out of pod0 and waits for its echo.
func expectEcho(t *testing.T, node *Host, to net.HardwareAddr) {
	t.Helper()
	dev, err := node.Netlink().LinkByName("pod0")
	if err != nil {
		t.Fatal(err)
	}
	proto := uint16(echoType[1])<<8 | uint16(echoType[0]) // network order
	var fd int
	testkit.Do(t, node.ns, func() error {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(proto))
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: dev.Attrs().Index})
	})
	defer unix.Close(fd)
	own := dev.Attrs().HardwareAddr
	frame := append(append(append(bytes.Clone(to), own...), echoType[:]...), make([]byte, 46)...)
	want := append(append(bytes.Clone(own), to...), echoType[:]...)
	if _, err := unix.Write(fd, frame); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		b := make([]byte, 100)
		n, err := unix.Read(fd, b)
		if err == nil && !bytes.HasPrefix(b[:n], want) {
			err = fmt.Errorf("got frame %x", b[:n])
		}
		return err
	})
}
