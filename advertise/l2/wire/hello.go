package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Hello is what a member periodically sends to each other member: that it is alive, and
// for which VIPs it could answer.
//
//	0  "FLL2"  magic
//	4  version, 1
//	5  flags: 1 signed
//	6  hold, in milliseconds
//	8  my token     16 your token     24 sequence number
//	32  first and last address that this hello covers, 16 bytes each
//	64  number of Ethernet addresses, one byte; number of offers, two
//	67  Ethernet addresses, 6 bytes each; offers, 17 each
//	if signed, HMAC-SHA-256 of sender, receiver and all of the above
//
// IPv4 addresses are IPv4-mapped IPv6 addresses (RFC 4291, section 2.5.5.2).
type Hello struct {
	// Hold is how long the sender counts as alive without another hello.
	Hold time.Duration
	// Mine identifies the sender's side of this session, Yours is the receiver's as last
	// received: a hello with the right one is not a replay from an older session.
	Mine, Yours uint64
	// Sequence increases with every hello of a session.
	Sequence uint64
	// First and Last are the range in which Offers is complete: offers that do not fit
	// one packet are split over several.
	First, Last netip.Addr
	MACs        []MAC
	// Offers are sorted by address.
	Offers []Offer
}

// Offer is an address that a member can answer for.
type Offer struct {
	Address netip.Addr
	// Claimed means that it does answer.
	Claimed bool
}

// Limits of a hello, so that a packet needs no fragmentation.
const (
	MaxOffers = 60
	maxMACs   = 16
)

const (
	helloMagic   = "FLL2"
	helloVersion = 1
	helloHead    = 67
	offerLength  = 17
	helloSigned  = 1
)

// Marshal encodes the hello and signs it with key, unless key is empty. From and to are
// the addresses of sender and receiver.
func (h Hello) Marshal(key []byte, from, to netip.Addr) []byte {
	b := append(make([]byte, 0, 1400), helloMagic...)
	flags := byte(0)
	if len(key) > 0 {
		flags = helloSigned
	}
	b = append(b, helloVersion, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(h.Hold.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, h.Mine)
	b = binary.BigEndian.AppendUint64(b, h.Yours)
	b = binary.BigEndian.AppendUint64(b, h.Sequence)
	b = append16(b, h.First)
	b = append16(b, h.Last)
	macs := h.MACs[:min(len(h.MACs), maxMACs)]
	b = append(b, byte(len(macs)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.Offers)))
	for _, m := range macs {
		b = append(b, m[:]...)
	}
	for _, o := range h.Offers {
		b = append16(b, o.Address)
		claimed := byte(0)
		if o.Claimed {
			claimed = 1
		}
		b = append(b, claimed)
	}
	if len(key) > 0 {
		b = append(b, sign(b, key, from, to)...)
	}
	return b
}

// ParseHello parses a hello. It must be signed with the key if there is one, and unsigned
// otherwise.
func ParseHello(b, key []byte, from, to netip.Addr) (Hello, error) {
	var h Hello
	if len(b) < helloHead || string(b[:4]) != helloMagic {
		return h, errors.New("no hello")
	}
	if b[4] != helloVersion {
		return h, fmt.Errorf("a hello of version %d: only %d is known", b[4], helloVersion)
	}
	b, err := authenticate(b, key, from, to)
	if err != nil {
		return h, err
	}
	h.Hold = time.Duration(binary.BigEndian.Uint16(b[6:])) * time.Millisecond
	h.Mine, h.Yours, h.Sequence = binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])
	h.First, h.Last = read16(b[32:]), read16(b[48:])
	macs, offers := int(b[64]), int(binary.BigEndian.Uint16(b[65:]))
	if b = b[helloHead:]; macs > maxMACs || offers > MaxOffers || len(b) != 6*macs+offerLength*offers || h.Hold == 0 || h.Mine == 0 {
		return Hello{}, errors.New("hello with inconsistent lengths")
	}
	for ; macs > 0; macs-- {
		h.MACs = append(h.MACs, MAC(b[:6]))
		b = b[6:]
	}
	for at := h.First; len(b) > 0; b = b[offerLength:] {
		a := read16(b)
		if Compare(a, at) < 0 || Compare(a, h.Last) > 0 || len(h.Offers) > 0 && a == at || b[16] > 1 {
			return Hello{}, errors.New("a hello whose offers are not in order")
		}
		h.Offers = append(h.Offers, Offer{a, b[16] == 1})
		at = a
	}
	return h, nil
}

// authenticate verifies the signature and returns the bytes without it.
func authenticate(b, key []byte, from, to netip.Addr) ([]byte, error) {
	signed := b[5]&helloSigned != 0
	switch {
	case signed && len(key) == 0:
		return nil, errors.New("hello is signed, but no password is configured")
	case len(key) == 0:
		return b, nil
	case !signed:
		return nil, errors.New("its hello is not signed: it has no password")
	case len(b) < helloHead+sha256.Size:
		return nil, errors.New("truncated hello")
	}
	body := b[:len(b)-sha256.Size]
	if !hmac.Equal(b[len(body):], sign(body, key, from, to)) {
		return nil, errors.New("its hello is signed with another password")
	}
	return body, nil
}

func sign(b, key []byte, from, to netip.Addr) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(append16(nil, from))
	h.Write(append16(nil, to))
	h.Write(b)
	return h.Sum(nil)
}

// Compare orders addresses as in the wire format, with IPv4 mapped into IPv6.
func Compare(a, b netip.Addr) int {
	return netip.AddrFrom16(a.As16()).Compare(netip.AddrFrom16(b.As16()))
}

func append16(b []byte, a netip.Addr) []byte {
	all := a.As16()
	return append(b, all[:]...)
}

func read16(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b[:16])).Unmap() }

// LowestAddress and HighestAddress are the first and last of all addresses, in the order
// of Compare.
var (
	LowestAddress  = netip.IPv6Unspecified()
	HighestAddress = netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
)
