package bgp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"
)

// subBFDDown is the cease subcode of RFC 9384, for which gobgp has no name.
const subBFDDown = 10

func isTimeout(err error) bool {
	var ne net.Error
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return errors.As(err, &ne) && ne.Timeout() && !errors.Is(err, unix.ETIMEDOUT)
}

func isEOF(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)
}

// errorWords explains why an open connection ended.
func errorWords(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "the peer closed the connection: its process ended"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "the peer reset the connection: its process or machine restarted"
	case errors.Is(err, unix.ETIMEDOUT):
		return "the connection timed out: the peer or the path to it failed"
	case errors.Is(err, net.ErrClosed):
		return "the session was closed"
	}
	return err.Error()
}

// dialWords explains why a connection was not established, and what to check.
func dialWords(to netip.AddrPort, local netip.Addr, password bool, waited time.Duration, err error) string {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Sprintf("%s refuses connections: nothing listens there. Start the peer, or correct its address or port", to)
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return fmt.Sprintf("no route to %s: check the address and this machine's routes", to.Addr())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Sprintf("%s is not an address of this machine: correct the local address", local)
	case isTimeout(err), errors.Is(err, unix.ETIMEDOUT):
		if password {
			return fmt.Sprintf("no answer from %s within %s: it is down or unreachable, a filter drops BGP, or the TCP MD5 passwords differ", to, waited)
		}
		return fmt.Sprintf("no answer from %s within %s: it is down or unreachable, a filter drops BGP, or it requires a TCP MD5 password", to, waited)
	}
	return err.Error()
}

// sentWords explains why we ended the session.
func (t *tap) sentWords(body []byte) string {
	code, sub := notificationCode(body)
	_, _, as, _, _ := t.status()
	switch {
	case code == pkt.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == pkt.BGP_ERROR_SUB_BAD_PEER_AS:
		return fmt.Sprintf("peer %s is in AS %d, expected %d: set --peer to ADDRESS@AS with the peer's AS, or correct the peer", t.peer, as, t.group.as)
	case code == pkt.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == pkt.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER:
		return fmt.Sprintf("peer %s has the same router ID as this speaker: router IDs must differ", t.peer)
	case code == pkt.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return fmt.Sprintf("nothing received from %s within the hold time", t.peer)
	case code == pkt.BGP_ERROR_CEASE && sub == pkt.BGP_ERROR_SUB_PEER_DECONFIGURED:
		return "closed by this speaker"
	}
	return "closed by this speaker: " + notificationName(code, sub)
}

// receivedWords explains why the peer ended the session.
func (t *tap) receivedWords(body []byte) string {
	code, sub := notificationCode(body)
	_, _, as, _, _ := t.status()
	switch {
	case code == pkt.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == pkt.BGP_ERROR_SUB_BAD_PEER_AS:
		return fmt.Sprintf("peer %s in AS %d does not expect AS %d: correct --local-asn or the peer", t.peer, as, t.ourAS)
	case code == pkt.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == pkt.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER:
		return fmt.Sprintf("peer %s, or another neighbor of it, has the same router ID as this speaker: router IDs must differ", t.peer)
	case code == pkt.BGP_ERROR_CEASE && sub == pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED:
		return fmt.Sprintf("peer %s closed the session: maximum number of prefixes or changes reached (--max-prefixes on the peer)", t.peer)
	case code == pkt.BGP_ERROR_CEASE && sub == pkt.BGP_ERROR_SUB_OUT_OF_RESOURCES:
		return fmt.Sprintf("peer %s rejected the session: maximum number of clients reached (see --max-clients there)", t.peer)
	case code == pkt.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return fmt.Sprintf("peer %s received nothing from us within its hold time", t.peer)
	case code == pkt.BGP_ERROR_CEASE && sub == subBFDDown:
		return fmt.Sprintf("peer %s lost the session by BFD", t.peer)
	case code == pkt.BGP_ERROR_CEASE && (sub == pkt.BGP_ERROR_SUB_PEER_DECONFIGURED || sub == pkt.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN):
		return fmt.Sprintf("peer %s closed the session: administrative shutdown", t.peer)
	case code == pkt.BGP_ERROR_CEASE && sub == pkt.BGP_ERROR_SUB_CONNECTION_REJECTED:
		return fmt.Sprintf("peer %s rejected the session: it has no neighbor with this speaker's address", t.peer)
	}
	return fmt.Sprintf("peer %s closed the session: %s", t.peer, notificationName(code, sub))
}

func notificationCode(body []byte) (code, sub uint8) {
	if len(body) < 2 {
		return 0, 0
	}
	return body[0], body[1]
}

func notificationName(code, sub uint8) string {
	return pkt.NewNotificationErrorCode(code, sub).String()
}

func nlriPrefix(n pkt.NLRI) netip.Prefix {
	if p, ok := n.(*pkt.IPAddrPrefix); ok {
		return p.Prefix
	}
	p, _ := netip.ParsePrefix(n.String())
	return p
}
