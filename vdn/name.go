package vdn

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode"
)

var (
	label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// nodeName accepts hostnames as they are, including capitals.
	nodeName = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]{0,251}[A-Za-z0-9])?$`)
	// containerID follows the CNI specification (1.1, section 2).
	containerID = regexp.MustCompile(`^[A-Za-z0-9][-_.A-Za-z0-9]{0,252}$`)
	macAddress  = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
)

const labelWords = "use up to 63 lowercase letters, digits and hyphens, such as science-1"

// IsDomain reports whether s is a lowercase DNS name.
func IsDomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for l := range strings.SplitSeq(s, ".") {
		if !label.MatchString(l) {
			return false
		}
	}
	return true
}

// isDevice reports whether the kernel accepts s as a device name (dev_valid_name in
// net/core/dev.c).
func isDevice(s string) bool {
	return s != "" && len(s) < 16 && s != "." && s != ".." &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || !unicode.IsPrint(r) })
}

const deviceWords = "is not a device name: use up to 15 characters without / : and spaces, such as eth1"

// isPrintable reports whether a text is printable and at most 512 bytes long.
func isPrintable(s string) bool {
	return len(s) <= 512 && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// address checks the address of a host.
func (c *checker) address(field string, a netip.Addr) bool {
	switch {
	case !a.IsValid():
		c.add(field, "is required: use an address such as 10.1.0.1 or fd00:1::1")
	case a.Is4In6():
		c.add(field, "%s is an IPv4-mapped IPv6 address: use %s", a, a.Unmap())
	case a.Zone() != "":
		c.add(field, "%s has a zone: use %s", a, a.WithZone(""))
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
		c.add(field, "%s is not a unicast host address: use another", a)
	default:
		return true
	}
	return false
}

// prefix checks a prefix, which must have no host bits set.
func (c *checker) prefix(field string, p netip.Prefix) bool {
	switch {
	case !p.IsValid():
		c.add(field, "is required: use a prefix such as 10.1.0.0/24 or fd00:1::/64")
	case p.Addr().Is4In6():
		c.add(field, "%s is an IPv4-mapped IPv6 prefix: use one such as 10.1.0.0/24", p)
	case p != p.Masked():
		c.add(field, "%s has host bits set: use %s", p, p.Masked())
	default:
		return true
	}
	return false
}

// each checks that texts are valid and unique.
func (c *checker) each(field string, all []string, right func(string) bool, fix string) {
	seen := map[string]bool{}
	for i, s := range all {
		at := index(field, i)
		switch {
		case !right(s):
			c.add(at, "%q %s", s, fix)
		case seen[s]:
			c.add(at, "%q is duplicated: remove one", s)
		}
		seen[s] = true
	}
}
