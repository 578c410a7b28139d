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

const labelWords = "want small letters, digits and -, up to 63, like science-1"

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

const deviceWords = "is no name of a device: up to 15 letters without / : and spaces, like eth1"

// isPrintable reports whether a text is printable and at most 512 bytes long.
func isPrintable(s string) bool {
	return len(s) <= 512 && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// address checks the address of a host.
func (c *checker) address(field string, a netip.Addr) bool {
	switch {
	case !a.IsValid():
		c.add(field, "an address is missing: write one like 10.1.0.1 or fd00:1::1")
	case a.Is4In6():
		c.add(field, "%s is an IPv4 address in IPv6's form: write %s", a, a.Unmap())
	case a.Zone() != "":
		c.add(field, "%s has a zone: write %s", a, a.WithZone(""))
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
		c.add(field, "%s is no address of one host on a network: write another", a)
	default:
		return true
	}
	return false
}

// prefix checks a prefix, which must have no host bits set.
func (c *checker) prefix(field string, p netip.Prefix) bool {
	switch {
	case !p.IsValid():
		c.add(field, "a prefix is missing: write one like 10.1.0.0/24 or fd00:1::/64")
	case p.Addr().Is4In6():
		c.add(field, "%s is an IPv4 prefix in IPv6's form: write it like 10.1.0.0/24", p)
	case p != p.Masked():
		c.add(field, "%s has bits of a host: write %s", p, p.Masked())
	default:
		return true
	}
	return false
}

// each checks that texts are valid and unique.
func (c *checker) each(field string, all []string, right func(string) bool, mend string) {
	seen := map[string]bool{}
	for i, s := range all {
		at := index(field, i)
		switch {
		case !right(s):
			c.add(at, "%q %s", s, mend)
		case seen[s]:
			c.add(at, "%q is there twice: take one away", s)
		}
		seen[s] = true
	}
}
