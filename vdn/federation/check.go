package federation

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/fairlead/fairlead/vdn"
)

// mostNetworks is how many a domain may share.
const mostNetworks = 4096

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func compare(a, b string) int { return strings.Compare(a, b) }

// Check reads an offer as a stranger's: what is not as it must be is refused by
// name, network by network. The whole is refused where it is another domain's.
func Check(domain string, o *vdn.Offer) error {
	if o.Domain != domain {
		return fmt.Errorf("peer %s says that it is %q: is its url another domain's?", domain, o.Domain)
	}
	if len(o.Networks) > mostNetworks {
		return fmt.Errorf("peer %s shares %d networks: at most %d are taken", domain, len(o.Networks), mostNetworks)
	}
	names := map[string]bool{}
	var taken []netip.Prefix
	for i := range o.Networks {
		n := &o.Networks[i]
		n.Refused = ""
		if err := checkNetwork(n, names, taken); err != nil {
			n.Refused = err.Error()
			continue
		}
		names[n.Name] = true
		taken = append(taken, n.Prefixes...)
	}
	return nil
}

func checkNetwork(n *vdn.SharedNetwork, names map[string]bool, taken []netip.Prefix) error {
	switch {
	case !label.MatchString(n.Name):
		return fmt.Errorf("name %.80q: want a DNS label", n.Name)
	case names[n.Name]:
		return fmt.Errorf("name %s: there is another of it", n.Name)
	case len(n.Prefixes) == 0:
		return fmt.Errorf("prefixes: there are none")
	}
	for _, p := range n.Prefixes {
		if err := checkPrefix(p); err != nil {
			return err
		}
		for _, other := range taken {
			if p.Overlaps(other) {
				return fmt.Errorf("prefix %s overlaps %s of another network of its domain", p, other)
			}
		}
	}
	for _, h := range n.Hosts {
		for _, a := range h.Addresses {
			if !within(a, n.Prefixes) {
				return fmt.Errorf("host %.80q: address %s is in none of its network's prefixes", h.Owner, a)
			}
		}
	}
	return nil
}

func checkPrefix(p netip.Prefix) error {
	switch {
	case !p.IsValid() || p != p.Masked() || p.Addr().Is4In6():
		return fmt.Errorf("prefix %q: want one like %s", p, p.Masked())
	case p.Bits() == 0 || p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast():
		return fmt.Errorf("prefix %s cannot be a network's", p)
	}
	return nil
}

func within(a netip.Addr, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
