package gather

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
)

// kubeProxyTable is the table of kube-proxy in nftables mode.
const kubeProxyTable = "kube-proxy"

// chains looks for the chains of kube-proxy in nftables (which iptables-nft also uses)
// and in legacy iptables.
func chains(context.Context) (found []string, err error) {
	all, err := nftChains()
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		err = nil // the kernel has no nftables
	}
	for _, c := range all {
		switch {
		case c[0] == kubeProxyTable:
			found = append(found, "table "+kubeProxyTable)
		case c[1] == doctor.KubeServices:
			found = append(found, c[0]+"/"+c[1])
		}
	}
	legacy, legacyErr := legacyNAT()
	if bytes.Contains(legacy, []byte(doctor.KubeServices)) {
		found = append(found, "iptables-legacy nat/"+doctor.KubeServices)
	}
	slices.Sort(found)
	return slices.Compact(found), errors.Join(err, legacyErr)
}

// Constants from <linux/netfilter_ipv4/ip_tables.h> that no package provides.
const (
	iptGetInfo    = 64 // IPT_SO_GET_INFO
	iptGetEntries = 65 // IPT_SO_GET_ENTRIES
	iptNameLen    = 32 // XT_TABLE_MAXNAMELEN
	iptInfoLen    = 84 // struct ipt_getinfo, whose last member is the size of the entries
	iptHeaderLen  = 40 // struct ipt_get_entries before the entries
	natTable      = "nat"
)

// legacyNAT returns the entries of the iptables nat table in the kernel's format, which
// contains chain names verbatim. It does not query a table that does not exist, because
// that would create it.
func legacyNAT() ([]byte, error) {
	names, err := os.ReadFile("/proc/self/net/ip_tables_names")
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil || !slices.Contains(strings.Fields(string(names)), natTable) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	info := make([]byte, iptInfoLen)
	copy(info, natTable)
	if err := getsockopt(fd, iptGetInfo, info); err != nil {
		return nil, err
	}
	size := binary.NativeEndian.Uint32(info[iptInfoLen-4:])
	entries := make([]byte, iptHeaderLen+int(size))
	copy(entries, natTable)
	binary.NativeEndian.PutUint32(entries[iptNameLen:], size)
	return entries, getsockopt(fd, iptGetEntries, entries)
}

func getsockopt(fd, option int, into []byte) error {
	length := uint32(len(into))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_IP, uintptr(option),
		uintptr(unsafe.Pointer(&into[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
