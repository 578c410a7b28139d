package lab

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
)

// bpfInsn is struct bpf_insn, progLoad the part of union bpf_attr that
// BPF_PROG_LOAD needs (linux/bpf.h).
type (
	bpfInsn struct {
		code, regs byte
		off        int16
		imm        int32
	}
	progLoad struct {
		progType, insnCount uint32
		insns               *bpfInsn
		license             *byte
		logLevel, logSize   uint32
		logBuf              *byte
		kernVersion, flags  uint32
		_                   [16]uint64
	}
)

// passProgram is "return XDP_PASS", written out here because a lab must not depend on the
// product's loader.
var passProgram = []bpfInsn{
	{code: unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K, imm: 2},
	{code: unix.BPF_JMP | unix.BPF_EXIT},
}

// attachXDP attaches a program to an interface in native mode.
func attachXDP(ns *netns.NS, dev netlink.Link, program []bpfInsn) error {
	fd, err := loadXDP(program)
	if err != nil {
		return fmt.Errorf("load an XDP program: %w", err)
	}
	err = ns.Do(func() error { return netlink.LinkSetXdpFdWithFlags(dev, fd, unix.XDP_FLAGS_DRV_MODE) })
	if err != nil {
		err = fmt.Errorf("attach an XDP program: %w", err)
	}
	return errors.Join(err, unix.Close(fd))
}

func loadXDP(program []bpfInsn) (fd int, err error) {
	license := []byte("GPL\x00")
	attr := progLoad{
		progType: unix.BPF_PROG_TYPE_XDP, insnCount: uint32(len(program)), insns: &program[0], license: &license[0],
		flags: unix.BPF_F_XDP_HAS_FRAGS, // otherwise the peer could send no GSO packet
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(attr.insns)
	pin.Pin(attr.license)
	// The verifier gives up if a signal is pending, and Go's runtime sends signals to
	// itself.
	for range 100 {
		r, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		if errno == 0 {
			return int(r), nil
		}
		if err = errno; errno != unix.EAGAIN {
			break
		}
	}
	return 0, err
}
