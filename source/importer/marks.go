package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/service"
)

// Marks are the destinations of packets with a firewall mark. The rules that set marks are
// in no LVS configuration.
type Marks map[uint32][]Listener

// Set parses "1=10.1.1.1:80", "1=10.1.1.1:8000-8999/udp" or, for an entire address,
// "1=10.1.1.1". The default protocol is TCP.
func (m Marks) Set(text string) error {
	number, what, ok := strings.Cut(text, "=")
	mark, err := strconv.ParseUint(number, 0, 32)
	if !ok || err != nil {
		return fmt.Errorf("%q is not a mark with its address, such as 1=10.1.1.1:80/tcp", text)
	}
	l, err := parseListener(what)
	if err != nil {
		return err
	}
	if !slices.Contains(m[uint32(mark)], l) {
		m[uint32(mark)] = append(m[uint32(mark)], l)
	}
	return nil
}

// protocols maps the names that LVS and Kubernetes use.
var protocols = map[string]service.Protocol{"tcp": service.TCP, "udp": service.UDP, "sctp": service.SCTP}

// ParseProtocol parses a protocol name, ignoring case.
func ParseProtocol(name string) (service.Protocol, bool) {
	p, ok := protocols[strings.ToLower(name)]
	return p, ok
}

func parseListener(text string) (l Listener, err error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return Listener{Addr: a}, service.CheckUnicast(a)
	}
	where, name, named := strings.Cut(text, "/")
	l.Protocol = service.TCP
	if named {
		var ok bool
		if l.Protocol, ok = ParseProtocol(name); !ok {
			return l, fmt.Errorf("%q is none of tcp, udp and sctp", name)
		}
	}
	colon := strings.LastIndexByte(where, ':')
	first, last, several := strings.Cut(where[colon+1:], "-")
	at, err := netip.ParseAddrPort(where[:colon+1] + first)
	if err != nil || at.Port() == 0 {
		return l, fmt.Errorf("%q is not an address with a port or a range of ports, such as 10.1.1.1:80 or 10.1.1.1:8000-8999/udp", text)
	}
	l.Addr, l.Port = at.Addr(), at.Port()
	if several {
		n, err := strconv.ParseUint(last, 10, 16)
		if err != nil || uint16(n) <= l.Port {
			return l, fmt.Errorf("%s-%s is not a range of ports; want the lower port first", first, last)
		}
		l.Last = uint16(n)
	}
	return l, service.CheckUnicast(l.Addr)
}
