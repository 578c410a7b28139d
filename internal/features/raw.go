package features

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Probes make their system calls directly: the library would replace the kernel's errno
// with its own guess of what the kernel lacks.

const maxLog = 1 << 14 // bytes of a verifier log; probes are tiny

// loadAttr is the beginning of union bpf_attr for BPF_PROG_LOAD (linux/bpf.h).
type loadAttr struct {
	programType, instructionCount uint32
	instructions, license         uint64
	logLevel, logSize             uint32
	log                           uint64
	kernelVersion, flags          uint32
	name                          [16]byte
	ifindex, attachType           uint32
}

// rawLoad loads a program and closes it; log is the verifier's log. Like the compiled
// programs it is for little-endian machines.
func rawLoad(spec *ebpf.ProgramSpec) (log string, err error) {
	var code bytes.Buffer
	if err := spec.Instructions.Marshal(&code, binary.LittleEndian); err != nil {
		return "", err
	}
	license := append([]byte(spec.License), 0)
	buffer := make([]byte, maxLog)
	attr := loadAttr{
		programType: uint32(spec.Type), instructionCount: uint32(code.Len() / asm.InstructionSize),
		instructions: address(code.Bytes()), license: address(license),
		logLevel: 1, logSize: maxLog, log: address(buffer), attachType: uint32(spec.AttachType),
	}
	err = bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(license)
	text, _, _ := bytes.Cut(buffer, []byte{0})
	return strings.TrimSpace(string(text)), err
}

// mapAttr is the beginning of union bpf_attr for BPF_MAP_CREATE.
type mapAttr struct {
	mapType, keySize, valueSize, maxEntries, flags, inner uint32
}

// rawMap creates a map that requires no BTF, and closes it.
func rawMap(spec *ebpf.MapSpec) error {
	attr := mapAttr{
		mapType: uint32(spec.Type), keySize: spec.KeySize, valueSize: spec.ValueSize, maxEntries: spec.MaxEntries, flags: spec.Flags,
	}
	if spec.InnerMap != nil {
		inner, err := ebpf.NewMap(spec.InnerMap)
		if err != nil {
			return err
		}
		defer inner.Close()
		attr.inner = uint32(inner.FD())
	}
	return bpf(unix.BPF_MAP_CREATE, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
}

// bpf makes a call of bpf(2) that returns a file descriptor, and closes it. The verifier
// returns EAGAIN if a signal is pending, and Go's runtime sends signals.
func bpf(command uintptr, attr unsafe.Pointer, size uintptr) error {
	const attempts = 50
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	for n := 1; errno == unix.EAGAIN && n < attempts; n++ {
		fd, _, errno = unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	}
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
