package keepalived

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/importer"
)

// server is a parsed real_server.
type server struct {
	importer.Server
	weight *uint32
	way    *way
	timing
	checkers []*checker
}

// way is the forwarding mode to a server.
type way struct {
	method        service.Method
	encapsulation service.Encapsulation
	guePort       uint16
}

// read parses "NAT", "DR" or "TUN [type {ipip|gue port N|gre} [csum ...]]".
func (w *way) read(v *virtual, n *node, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	switch words[0] {
	case "NAT":
		*w = way{method: service.NAT}
	case "DR":
		*w = way{method: service.DR}
	case "TUN":
		*w = way{method: service.Tunnel, encapsulation: service.IPIP}
		w.tunnel(v, n, words[1:])
	default:
		v.lose(n, "it is none of NAT, DR and TUN", "NAT is used, as by keepalived")
		*w = way{method: service.NAT}
	}
}

func (w *way) tunnel(v *virtual, n *node, words []string) {
	for i := 0; i < len(words); i++ {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch words[i] {
		case "type":
			i++
			if next == "gue" {
				w.encapsulation = service.GUE
			} else if next != "ipip" {
				v.loseAs(n, "tunnel type "+next, "Fairlead has ipip and gue; ipip is used", "set fairlead.io/encapsulation to gue where routers must tell flows apart")
			}
		case "port":
			i++
			port, err := strconv.ParseUint(next, 10, 16)
			if err != nil || port == 0 {
				v.loseAs(n, "tunnel port "+next, "that is not a port", "Fairlead's own is used")
			}
			w.guePort = uint16(port)
		case "nocsum":
		default:
			v.loseAs(n, "tunnel option "+words[i], "Fairlead's tunnels have no checksum of their own", "leave it out")
		}
	}
}

// readServer reads a real_server.
func (v *virtual) readServer(n *node) {
	s := &server{}
	s.At = n.at
	var err error
	if s.Addr, err = netip.ParseAddr(n.arg(1)); err != nil {
		v.loseAs(n, n.String(), "that is not an IP address", "it is left out")
		return
	}
	if n.arg(2) != "" {
		port, err := strconv.ParseUint(n.arg(2), 10, 16)
		if err != nil {
			v.loseAs(n, n.String(), fmt.Sprintf("%q is not a port", n.arg(2)), "it is left out")
			return
		}
		s.Port = uint16(port)
	}
	for _, c := range n.block {
		v.serverStatement(s, c)
	}
	v.servers = append(v.servers, s)
}

func (v *virtual) serverStatement(s *server, n *node) {
	word := n.word()
	if checkers[word] == nil {
		v.alone(n)
	}
	switch {
	case word == "weight":
		w := readWeight(v, n)
		s.weight = &w
	case word == "lvs_method" || word == "lb_kind":
		s.way = &way{}
		s.way.read(v, n, n.words[1:])
	case word == "uthreshold":
		s.MaxConns = readThreshold(v, n)
	case word == "lthreshold":
		if readThreshold(v, n) > 0 {
			v.lose(n, "a server gets new connections as soon as it has fewer than its most", "leave it out")
		}
	case word == "alpha":
	case checkers[word] != nil:
		s.checkers = append(s.checkers, v.readChecker(n))
	case virtualLosses[word] != [2]string{}:
		if why := virtualLosses[word]; !isOff(n) {
			v.lose(n, why[0], why[1])
		}
	case s.timing.read(v, n):
	default:
		v.lose(n, "the word is not known here", "if it matters, see what it does in keepalived.conf(5)")
	}
}

func readWeight(v *virtual, n *node) uint32 {
	w, err := strconv.ParseUint(n.arg(1), 10, 32)
	if err != nil {
		v.lose(n, "that is not a weight", "1 is used")
		return 1
	}
	if w > service.MaxWeight {
		v.lose(n, fmt.Sprintf("%d is the most", service.MaxWeight), "make all weights smaller alike")
		return service.MaxWeight
	}
	return uint32(w)
}

func readThreshold(v *virtual, n *node) uint32 {
	t, err := strconv.ParseUint(n.arg(1), 10, 32)
	if err != nil {
		v.lose(n, "that is not a number of connections", "it is left out")
	}
	return uint32(t)
}

// finish fills in what a server inherits from the virtual server.
func (s *server) finish(v *virtual) importer.Server {
	out, w := s.Server, v.way
	if s.way != nil {
		w = *s.way
	}
	out.Method, out.Encapsulation, out.GUEPort = w.method, w.encapsulation, w.guePort
	out.Weight = v.weight
	if s.weight != nil {
		out.Weight = *s.weight
	}
	out.Check = s.check(v)
	return out
}
