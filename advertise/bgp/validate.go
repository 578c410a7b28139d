package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/fairlead/fairlead/advertise/bfd"
)

// validatePeers validates all peers, including those that must be discovered.
func validatePeers(peers []PeerConfig, local netip.Addr) error {
	links := map[string]int{}
	for i, p := range peers {
		field := fmt.Sprintf("peers[%d]", i)
		if err := validatePeer(field, p, local); err != nil {
			return err
		}
		if j, twice := links[p.SourceInterface]; twice && p.unnumbered() {
			return fmt.Errorf("%s.sourceInterface: peers[%d] is the router on %s already", field, j, p.SourceInterface)
		} else if p.unnumbered() {
			links[p.SourceInterface] = i
		}
	}
	return nil
}

func validateIdentity(as uint32, id, local netip.Addr) (netip.Addr, error) {
	if as == 0 || as == 23456 || as == 65535 || as == 1<<32-1 {
		return id, fmt.Errorf("as: %d is reserved; private ones are 64512 to 65534 (RFC 6996)", as)
	}
	if !id.IsValid() && local.Is4() {
		id = local
	}
	if !id.Is4() || id.IsUnspecified() {
		return id, errors.New("routerID: not set, and the local address is not IPv4; use an IPv4 address of this machine")
	}
	return id, nil
}

func validateSession(field string, password string, hold time.Duration, t bfd.Timing) error {
	if len(password) > 80 {
		return fmt.Errorf("%s.password: %d bytes, TCP MD5 accepts at most 80", field, len(password))
	}
	if hold != 0 && (hold < 3*time.Second || hold > 65535*time.Second || hold%time.Second != 0) {
		return fmt.Errorf("%s.holdTime: %s: use whole seconds, at least 3 (RFC 4271)", field, hold)
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("%s.timing: %w", field, err)
	}
	return nil
}

func validatePeer(field string, p PeerConfig, local netip.Addr) error {
	if p.unnumbered() {
		p.Address, local = netip.MustParseAddr("fe80::1").WithZone(p.SourceInterface), netip.Addr{} // any address will do
	}
	if p.SourceAddress.IsValid() {
		local = p.SourceAddress
	}
	a := p.Address
	switch {
	case strings.ContainsFunc(p.Name, unicode.IsSpace):
		return fmt.Errorf("%s.name: %q has a space", field, p.Name)
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6():
		return fmt.Errorf("%s.address: %v is not a valid neighbor address", field, a)
	case a == local:
		return fmt.Errorf("%s.address: %s is the speaker's own address", field, local)
	case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
		return fmt.Errorf("%s.address: %s is link-local; add the interface, as in %s%%eth0", field, a, a)
	case a.Zone() != "" && !a.IsLinkLocalUnicast():
		return fmt.Errorf("%s.address: %s has a zone but is not a link-local address; omit %%%s", field, a, a.Zone())
	case local.IsValid() && local.Is4() != a.Is4():
		return fmt.Errorf("%s.address: %s and the local address %s are of different families", field, a, local)
	}
	return cmp.Or(validateTimers(field, p), validateHops(field, p), validateSession(field, p.Password, p.HoldTime, p.Timing))
}

func validateTimers(field string, p PeerConfig) error {
	hold := cmp.Or(p.HoldTime, DefaultHoldTime)
	switch {
	case p.Keepalive != 0 && (p.Keepalive < time.Second || p.Keepalive%time.Second != 0):
		return fmt.Errorf("%s.keepalive: %s: use whole seconds", field, p.Keepalive)
	case p.Keepalive >= hold:
		return fmt.Errorf("%s.keepalive: %s is not less than the hold time of %s; a third of it is usual (RFC 4271)", field, p.Keepalive, hold)
	case p.ConnectRetry < 0 || p.ConnectRetry != 0 && p.ConnectRetry < 100*time.Millisecond || p.ConnectRetry > time.Hour:
		return fmt.Errorf("%s.connectRetry: %s: use 100ms to 1h", field, p.ConnectRetry)
	}
	return nil
}

func validateHops(field string, p PeerConfig) error {
	switch {
	case p.EBGPMultihop != 0 && p.AS == 0:
		return fmt.Errorf("%s.ebgpMultihop: %d applies only to peers in another AS; omit it", field, p.EBGPMultihop)
	case p.EBGPMultihop != 0 && p.TTLSecurity != 0:
		return fmt.Errorf("%s.ebgpMultihop: %d and ttlSecurity are mutually exclusive; omit one of them", field, p.EBGPMultihop)
	case p.TTLSecurity == 255:
		return fmt.Errorf("%s.ttlSecurity: must be 0 to 254", field)
	}
	return nil
}

func validateGroup(i int, g NeighborGroup) error {
	field := fmt.Sprintf("groups[%d]", i)
	if g.Name != "" {
		field = fmt.Sprintf("groups[%s]", g.Name)
	}
	if len(g.Prefixes) == 0 {
		return fmt.Errorf("%s.prefixes: must not be empty; configure the prefix of the neighbors' addresses", field)
	}
	for _, p := range g.Prefixes {
		if !p.IsValid() {
			return fmt.Errorf("%s.prefixes: invalid prefix", field)
		}
		if p != p.Masked() {
			return fmt.Errorf("%s.prefixes: %s has host bits set; use %s", field, p, p.Masked())
		}
	}
	return validateSession(field, g.Password, g.HoldTime, g.Timing)
}
