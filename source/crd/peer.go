package crd

import (
	"cmp"
	"errors"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/api/v1alpha1"
)

// Peer is a BGPPeer that selects the node. Zero fields are left to the speaker.
type Peer struct {
	Name string
	// Address has the interface as its zone if it is link-local. Without an IP address, the
	// peer is the router discovered on Interface.
	Address netip.AddrPort
	// Interface and Source are what the session is bound to.
	Interface string
	Source    netip.Addr
	// AS 0 means the balancers' own AS.
	AS                                uint32
	PasswordSecretRef                 string // name of a Secret, or empty
	Password                          string // its content, once read
	HoldTime, Keepalive, ConnectRetry time.Duration
	EBGPMultihop, TTLSecurity         uint8
	BFD                               bool
	BFDInterval                       time.Duration
	BFDMultiplier                     uint8
}

// ParsePeer reads a BGPPeer except its selector. The error names all invalid fields.
func ParsePeer(p *v1alpha1.BGPPeer) (Peer, error) {
	s := &p.Spec
	f := fields{}
	made := Peer{
		Name: p.Name, Interface: s.Interface, AS: uint32(f.within("peerASN", s.PeerASN, 0, math.MaxUint32-1)), PasswordSecretRef: s.PasswordSecretRef,
		HoldTime:     time.Duration(f.within("holdTimeSeconds", int64(s.HoldTimeSeconds), 0, 65535)) * time.Second,
		Keepalive:    time.Duration(f.within("keepaliveSeconds", int64(s.KeepaliveSeconds), 0, 21845)) * time.Second,
		ConnectRetry: time.Duration(f.within("connectRetrySeconds", int64(s.ConnectRetrySeconds), 0, 3600)) * time.Second,
		EBGPMultihop: uint8(f.within("ebgpMultihop", int64(s.EBGPMultihop), 0, 255)),
		TTLSecurity:  uint8(f.within("ttlSecurity", int64(s.TTLSecurity), 0, 254)),
		BFD:          true,
	}
	if b := s.BFD; b != nil {
		made.BFD = b.Enabled == nil || *b.Enabled
		made.BFDInterval = time.Duration(f.within("bfd.intervalMilliseconds", int64(b.IntervalMilliseconds), 0, 60000)) * time.Millisecond
		made.BFDMultiplier = uint8(f.within("bfd.detectMultiplier", int64(b.DetectMultiplier), 0, 255))
	}
	var addr netip.Addr
	if s.PeerAddress != "" || s.Interface == "" {
		addr = f.address("peerAddress", s.PeerAddress)
	}
	if addr.Is6() && addr.IsLinkLocalUnicast() && s.Interface != "" {
		addr = addr.WithZone(s.Interface)
	}
	if s.SourceAddress != "" {
		made.Source = f.address("sourceAddress", s.SourceAddress)
	}
	made.Address = netip.AddrPortFrom(addr, uint16(f.within("port", int64(s.Port), 0, 65535)))
	switch { // the same rules as in the CRD
	case addr.Is6() && addr.IsLinkLocalUnicast() && s.Interface == "":
		f.refuse("peerAddress", "%s is link-local: spec.interface is required, too", addr)
	case s.EBGPMultihop != 0 && s.PeerASN == 0:
		f.refuse("ebgpMultihop", "applies only to peers in another AS: set spec.peerASN, or omit it")
	case s.EBGPMultihop != 0 && s.TTLSecurity != 0:
		f.refuse("ebgpMultihop", "is mutually exclusive with spec.ttlSecurity: omit one of them")
	case s.KeepaliveSeconds != 0 && s.KeepaliveSeconds >= cmp.Or(s.HoldTimeSeconds, 9):
		f.refuse("keepaliveSeconds", "%d is not less than spec.holdTimeSeconds: use a third of it", s.KeepaliveSeconds)
	}
	return made, f.err
}

// ValidatePeer returns an error that names all invalid fields.
func ValidatePeer(p *v1alpha1.BGPPeer) error {
	_, wrong := selector("spec.nodeSelector", p.Spec.NodeSelector)
	_, err := ParsePeer(p)
	return errors.Join(wrong, err)
}

// Object names a peer in problems.
func (p Peer) Object() string { return "BGPPeer " + p.Name }

// PeersOf returns the peers of a node with these labels, sorted by name, and those that are
// left out.
func PeersOf(all []*v1alpha1.BGPPeer, node map[string]string) (peers []Peer, out []Wrong) {
	all = slices.SortedFunc(slices.Values(all), func(a, b *v1alpha1.BGPPeer) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range all {
		of, wrong := selector("spec.nodeSelector", p.Spec.NodeSelector)
		made, unparsed := ParsePeer(p)
		if err := errors.Join(wrong, unparsed); err != nil {
			out = append(out, Wrong{"BGPPeer " + p.Name, err})
			continue
		}
		if matches(of, node) {
			peers = append(peers, made)
		}
	}
	return peers, out
}
