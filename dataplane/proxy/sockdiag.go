package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Definitions from <linux/inet_diag.h> and <linux/sock_diag.h> that no package has.
const (
	diagConnected    = 1 << 1 // of idiag_states: TCP_ESTABLISHED
	diagIDAt         = 4      // struct inet_diag_sockid in struct inet_diag_msg
	diagIDLength     = 48
	diagPortAt       = 2  // idiag_dport in it
	diagPeerAt       = 20 // idiag_dst
	diagCookieAt     = 40 // idiag_cookie
	diagRequestIDAt  = 8  // in struct inet_diag_req_v2
	diagRequestWhole = diagRequestIDAt + diagIDLength
	sockDestroy      = 21 // SOCK_DESTROY
)

// diagRequest is struct inet_diag_req_v2 for UDP.
func diagRequest(family uint8, states uint32, id []byte) []byte {
	b := make([]byte, diagRequestWhole)
	b[0], b[1] = family, unix.IPPROTO_UDP
	binary.NativeEndian.PutUint32(b[4:], states)
	copy(b[diagRequestIDAt:], id)
	return b
}

// diagID is struct inet_diag_sockid, with its family.
type diagID struct {
	family uint8
	raw    []byte
}

func (id diagID) cookie() uint64 { return binary.NativeEndian.Uint64(id.raw[diagCookieAt:]) }

// peer is the socket's connected peer, in the programs' format.
func (id diagID) peer() proxyEndpoint {
	addr := netip.AddrFrom16([16]byte(id.raw[diagPeerAt:][:16]))
	if id.family == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(id.raw[diagPeerAt:][:4]))
	}
	return proxyEndpoint{Addr: toAddr(addr), Port: binary.NativeEndian.Uint16(id.raw[diagPortAt:])}
}

// endSockets ends the connected UDP sockets of the calling thread's namespace that which
// selects.
func endSockets(which func(diagID) bool) error {
	var errs []error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.AddRawData(diagRequest(family, diagConnected, nil))
		messages, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
		if err != nil {
			errs = append(errs, fmt.Errorf("list UDP sockets by sock_diag: %w", err))
			continue
		}
		for _, m := range messages {
			if len(m) < diagIDAt+diagIDLength {
				continue
			}
			if id := (diagID{family, m[diagIDAt:][:diagIDLength]}); which(id) {
				errs = append(errs, destroy(family, id.raw))
			}
		}
	}
	return errors.Join(errs...)
}

// destroy ends a socket. An absent one is not an error.
func destroy(family uint8, id []byte) error {
	req := nl.NewNetlinkRequest(sockDestroy, unix.NLM_F_ACK)
	req.AddRawData(diagRequest(family, 0, id))
	_, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESTALE):
		return nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("end a UDP socket (the kernel needs CONFIG_INET_DIAG_DESTROY): %w", err)
	case err != nil:
		return fmt.Errorf("end a UDP socket: %w", err)
	}
	return nil
}
