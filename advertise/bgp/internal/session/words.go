package session

import (
	"fmt"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
)

// subBFDDown is the cease subcode of RFC 9384, for which the library has no name.
const subBFDDown = 10

// sentWords explains why we ended the session.
func (t *Session) sentWords(code, sub uint8) string {
	as := t.Status().PeerAS
	switch {
	case code == pkt.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == pkt.BGP_ERROR_SUB_BAD_PEER_AS:
		return fmt.Sprintf("peer %s is in AS %d, expected %d: set --peer to ADDRESS@AS with the peer's AS, or correct the peer", t.Peer, as, t.Group.AS)
	case code == pkt.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == pkt.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER:
		return fmt.Sprintf("peer %s has the same router ID as this speaker: router IDs must differ", t.Peer)
	case code == pkt.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return fmt.Sprintf("nothing received from %s within the hold time", t.Peer)
	case code == pkt.BGP_ERROR_CEASE && sub == pkt.BGP_ERROR_SUB_PEER_DECONFIGURED:
		return "closed by this speaker"
	}
	return "closed by this speaker: " + wire.NotificationName(code, sub)
}

// receivedWords explains why the peer ended the session.
func (t *Session) receivedWords(body []byte) string {
	code, sub := wire.NotificationCode(body)
	as := t.Status().PeerAS
	switch {
	case code == pkt.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == pkt.BGP_ERROR_SUB_BAD_PEER_AS:
		return fmt.Sprintf("peer %s in AS %d does not expect AS %d: correct --local-asn or the peer", t.Peer, as, t.AS)
	case code == pkt.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == pkt.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER:
		return fmt.Sprintf("peer %s, or another neighbor of it, has the same router ID as this speaker: router IDs must differ", t.Peer)
	case code == pkt.BGP_ERROR_CEASE && sub == pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED:
		return fmt.Sprintf("peer %s closed the session: maximum number of prefixes or changes reached (--max-prefixes on the peer)", t.Peer)
	case code == pkt.BGP_ERROR_CEASE && sub == pkt.BGP_ERROR_SUB_OUT_OF_RESOURCES:
		return fmt.Sprintf("peer %s rejected the session: maximum number of clients reached (see --max-clients there)", t.Peer)
	case code == pkt.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return fmt.Sprintf("peer %s received nothing from us within its hold time", t.Peer)
	case code == pkt.BGP_ERROR_CEASE && sub == subBFDDown:
		return fmt.Sprintf("peer %s lost the session by BFD", t.Peer)
	case code == pkt.BGP_ERROR_CEASE && (sub == pkt.BGP_ERROR_SUB_PEER_DECONFIGURED || sub == pkt.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN):
		return fmt.Sprintf("peer %s closed the session: administrative shutdown", t.Peer)
	case code == pkt.BGP_ERROR_CEASE && sub == pkt.BGP_ERROR_SUB_CONNECTION_REJECTED:
		return fmt.Sprintf("peer %s rejected the session: it has no neighbor with this speaker's address", t.Peer)
	}
	return fmt.Sprintf("peer %s closed the session: %s", t.Peer, wire.NotificationName(code, sub))
}
