package refuse

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// filter defines which system calls the supervisor has to see. All others, and those of
// 32-bit programs, continue immediately.
type filter struct {
	commands  []uint32 // of bpf(2)
	protocols []uint32 // of netlink, at socket(2)
	sends     bool     // sendmsg(2), and sendto(2) with a sockaddr_nl
}

func filterFor(rules []Rule) filter {
	var f filter
	for _, r := range rules {
		r.watch(&f)
	}
	return f
}

// Offsets in struct seccomp_data; for an argument, of the half that contains an int.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
)

func dataArg(i uint32) uint32 { return dataArgs + 8*i } // little endian

var architectures = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64,
}

// program is the filter for the kernel, in classic BPF.
func (f filter) program() ([]unix.SockFilter, error) {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("not supported on %s", runtime.GOARCH)
	}
	code := []unix.SockFilter{load(dataArch), equal(arch, 1, 0), allow, load(dataNr)}
	if len(f.commands) > 0 {
		code = append(code, onCall(unix.SYS_BPF, oneOf(dataArg(0), f.commands))...)
	}
	if len(f.protocols) > 0 {
		domain := []unix.SockFilter{load(dataArg(0)), equal(unix.AF_NETLINK, 1, 0), allow}
		code = append(code, onCall(unix.SYS_SOCKET, append(domain, oneOf(dataArg(2), f.protocols)...))...)
	}
	if f.sends {
		code = append(code, onCall(unix.SYS_SENDMSG, []unix.SockFilter{notify})...)
		code = append(code, onCall(unix.SYS_SENDTO, oneOf(dataArg(5), []uint32{unix.SizeofSockaddrNetlink}))...)
	}
	return append(code, allow), nil
}

var (
	allow  = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	notify = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF}
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// equal skips then instructions if what was loaded is value, else otherwise.
func equal(value uint32, then, otherwise int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(then), Jf: uint8(otherwise), K: value}
}

// onCall runs body, which returns, for one system call. The number of the system call
// must be loaded, and stays loaded for others.
func onCall(nr uint32, body []unix.SockFilter) []unix.SockFilter {
	return append([]unix.SockFilter{equal(nr, 0, len(body))}, body...)
}

// oneOf notifies if the word at an offset is one of values.
func oneOf(offset uint32, values []uint32) []unix.SockFilter {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	code := []unix.SockFilter{load(offset)}
	for i, v := range values {
		code = append(code, equal(v, len(values)-i, 0))
	}
	return append(code, allow, notify)
}
