package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// VirtualServer is an LVS virtual service, from keepalived or ipvsadm: its addresses,
// scheduler and real servers.
type VirtualServer struct {
	At At
	// Name is the stem of the Services' names; empty to derive it from the address.
	Name      string
	Listeners []Listener
	// Scheduler is the LVS name; empty for the LVS default.
	Scheduler string
	// HashPort makes sh and mh also hash the client's port.
	HashPort bool
	// OnePacket schedules each datagram separately.
	OnePacket bool
	// Persistent is how long a client stays with its server; 0 for no persistence.
	Persistent time.Duration
	Servers    []Server
	// Unchecked means that the input format has no health checks, so that their absence is
	// not significant.
	Unchecked bool
	// Losses were recorded while reading the input.
	Losses []Loss
}

// Listener is an address for clients. Port 0 means every port of the protocol;
// service.AnyProtocol means the entire address.
type Listener struct {
	Addr       netip.Addr
	Port, Last uint16 // Last as in service.Key
	Protocol   service.Protocol
}

// ports is a Listener without its address.
type ports struct {
	first, last uint16
	protocol    service.Protocol
	ipv6        bool
}

func (l Listener) ports() ports {
	p := ports{l.Port, l.Last, l.Protocol, l.Addr.Is6()}
	if p.first == 0 && p.protocol != service.AnyProtocol {
		p.first, p.last = 1, 65535
	}
	return p
}

func (p ports) isRange() bool { return p.last != 0 || p.protocol == service.AnyProtocol }

// Server is a real server. Port 0 means the port that the client addressed.
type Server struct {
	At            At
	Addr          netip.Addr
	Port          uint16
	Method        service.Method
	Encapsulation service.Encapsulation
	// GUEPort is the UDP port of its GUE tunnel.
	GUEPort  uint16
	Weight   uint32
	MaxConns uint32
	// Check is nil for none.
	Check *service.HealthCheck
}

func (s Server) String() string {
	if s.Port == 0 {
		return s.Addr.String()
	}
	return netip.AddrPortFrom(s.Addr, s.Port).String()
}

// LVS converts virtual servers to manifests.
type LVS struct {
	Result
	names map[string]bool
	keys  map[Listener]At
	gue   uint16
}

// NewLVS returns an empty LVS.
func NewLVS() *LVS {
	return &LVS{names: map[string]bool{}, keys: map[Listener]At{}}
}

// Add creates the manifests of a virtual server: one Service for each port of each family.
func (c *LVS) Add(v VirtualServer) {
	var all []ports
	byPorts := map[ports][]netip.Addr{}
	for _, l := range v.Listeners {
		if err := service.CheckUnicast(l.Addr); err != nil {
			v.lose(v.At, "virtual server "+l.String(), err.Error(), "give it an address that clients can reach")
			continue
		}
		if first, twice := c.keys[l]; twice {
			v.lose(v.At, "virtual server "+l.String(), fmt.Sprintf("%s has it already", first), "give one of the two another address or port")
			continue
		}
		c.keys[l] = v.At
		p := l.ports()
		if byPorts[p] == nil {
			all = append(all, p)
		}
		byPorts[p] = append(byPorts[p], l.Addr)
	}
	if len(all) > 1 && v.Persistent > 0 {
		v.lose(v.At, "persistence over several ports or families", "each is a Service of its own, where a client stays with one server", "")
	}
	first := ""
	for i, p := range all {
		s := &lvsService{ports: p, addrs: byPorts[p], v: &v, name: c.name(&v, p, byPorts[p][0], len(all) > 1)}
		if i == 0 {
			first = s.name
		}
		from := len(v.Losses)
		c.build(s)
		for j := range v.Losses[from:] {
			v.Losses[from+j].Service = s.name
		}
	}
	for i := range v.Losses {
		if v.Losses[i].Service == "" {
			v.Losses[i].Service = first
		}
	}
	c.Lose(v.Losses...)
}

// build creates one Service's manifest, if an agent would accept it.
func (c *LVS) build(s *lvsService) {
	if !s.settle() {
		return
	}
	if s.gue != 0 {
		c.tunnels(s)
	}
	m, err := s.manifest()
	taken, losses := m.Check()
	if err != nil {
		losses = append(losses, Loss{At: m.At, What: "Service " + m.Name, Why: err.Error()})
	}
	for _, l := range losses {
		s.v.lose(l.At, l.What, l.Why, "the Service is left out: write it by hand")
	}
	if !taken || len(losses) > 0 {
		return
	}
	c.Manifests = append(c.Manifests, m)
}

// tunnels sets the agents' flag for the port of GUE tunnels, of which there is only one.
func (c *LVS) tunnels(s *lvsService) {
	switch {
	case c.gue == 0:
		c.gue = s.gue
		c.Agent = append(c.Agent, "--gue-port", fmt.Sprint(s.gue))
	case c.gue != s.gue:
		s.v.lose(s.v.At, fmt.Sprintf("tunnels to UDP port %d", s.gue), fmt.Sprintf("all of an agent's tunnels have one port, %d", c.gue),
			"nothing is to be done where Fairlead takes the packets out, too")
	}
}

// name returns a unique name for a Service.
func (c *LVS) name(v *VirtualServer, p ports, a netip.Addr, several bool) string {
	port := fmt.Sprint(p.first)
	switch {
	case p.protocol == service.AnyProtocol:
		port = "all"
	case p.isRange():
		port = fmt.Sprintf("%d-%d", p.first, p.last)
	}
	stem := v.Name
	if stem == "" {
		stem = strings.ToLower(p.protocol.String()) + "-" + a.String()
	}
	if v.Name == "" || several {
		stem += "-" + port
	}
	return UniqueName(c.names, stem)
}

// UniqueName converts a text to a unique DNS label, and records it.
func UniqueName(taken map[string]bool, text string) string {
	const most = 50 // of 63, so that a number and a slice's suffix fit
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
	label = strings.Trim(label[:min(len(label), most)], "-")
	if label == "" || label[0] <= '9' {
		label = strings.Trim("lb-"+label, "-")
	}
	name := label
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", label, n)
	}
	taken[name] = true
	return name
}

func (v *VirtualServer) lose(at At, what, why, fix string) {
	v.Losses = append(v.Losses, Loss{At: at, What: what, Why: why, Fix: fix})
}

func (l Listener) String() string {
	return service.Key{VIP: l.Addr, Port: l.Port, Last: l.Last, Protocol: l.Protocol}.String()
}

// lvsService is one Service of a virtual server, while it is being created.
type lvsService struct {
	ports
	v     *VirtualServer
	name  string
	addrs []netip.Addr

	scheduler     service.Scheduler
	method        service.Method
	encapsulation service.Encapsulation
	gue           uint16
	servers       []Server
	affinity      time.Duration
	check         service.HealthCheck
	checked       bool
}

// settle decides on all settings, and reports whether a Service remains.
func (s *lvsService) settle() bool {
	if !s.settleScheduler() {
		return false
	}
	s.settleMethod()
	s.settleServers()
	s.settleAffinity()
	s.settleCheck()
	if len(s.servers) == 0 {
		s.v.lose(s.v.At, "Service "+s.name, "it has no servers", "it is left out")
		return false
	}
	return true
}

// schedulers maps LVS schedulers to Fairlead's; if why is set, the result is only similar.
var schedulers = map[string]struct {
	is  service.Scheduler
	why string
}{
	"": {is: service.WeightedLeastConn}, "rr": {is: service.RoundRobin}, "wrr": {is: service.WeightedRoundRobin},
	"lc": {is: service.LeastConn}, "wlc": {is: service.WeightedLeastConn}, "dh": {is: service.DestinationHash},
	"sh": {is: service.SourceHash}, "mh": {is: service.SourceHash}, "twos": {is: service.PowerOfTwo},
	"sed":   {service.WeightedLeastConn, "the one that is to come is not counted"},
	"nq":    {service.WeightedLeastConn, "idle servers do not come first"},
	"lblc":  {service.WeightedLeastConn, "destinations have no servers of their own"},
	"lblcr": {service.WeightedLeastConn, "destinations have no servers of their own"},
}

func (s *lvsService) settleScheduler() bool {
	name := s.v.Scheduler
	if name == "fo" || name == "ovf" {
		s.v.lose(s.v.At, "scheduler "+name, "Fairlead has no servers that stand by until others are away or full",
			"the Service "+s.name+" is left out, since its spare servers would get traffic")
		return false
	}
	known, ok := schedulers[name]
	if !ok {
		known.is, known.why = service.WeightedLeastConn, "it is not known"
	}
	if known.why != "" {
		s.v.lose(s.v.At, "scheduler "+name, fmt.Sprintf("Fairlead has none like it; %s is used: %s", known.is, known.why),
			"look at the other schedulers")
	}
	s.scheduler = known.is
	if s.v.HashPort && (name == "sh" || name == "mh") {
		s.scheduler = service.Maglev
	}
	return true
}

// way is the forwarding mode to a server.
type way struct {
	method        service.Method
	encapsulation service.Encapsulation
}

func (w way) String() string {
	return strings.TrimSpace(string(w.method) + " " + string(w.encapsulation))
}

// settleMethod chooses the forwarding mode that most servers have, because a Service has
// only one.
func (s *lvsService) settleMethod() {
	count := map[way]int{}
	best := way{method: service.NAT}
	for _, r := range s.v.Servers {
		w := way{r.Method, r.Encapsulation}
		if count[w]++; count[w] > count[best] {
			best = w
		}
	}
	s.method, s.encapsulation = best.method, best.encapsulation
	for _, r := range s.v.Servers {
		if (way{r.Method, r.Encapsulation}) != best {
			s.v.lose(r.At, fmt.Sprintf("server %s by %s", r, way{r.Method, r.Encapsulation}),
				fmt.Sprintf("a Service has one method, here %s", best), "the server is left out: let it have the method of the others")
			continue
		}
		s.servers = append(s.servers, r)
		if s.gue == 0 {
			s.gue = r.GUEPort
		}
	}
	if s.method == service.Tunnel {
		s.v.lose(s.v.At, "tunnels that the servers' kernels end", "Fairlead's tunnels are ended by Fairlead",
			"run fairlead agent --role dsr on the servers' nodes")
	}
}

// settleServers removes what cannot be a backend here.
func (s *lvsService) settleServers() {
	families := map[bool]int{}
	for _, r := range s.servers {
		families[r.Addr.Is6()]++
	}
	other := s.method == service.Tunnel && families[s.ipv6] == 0
	seen := map[netip.AddrPort]bool{}
	s.servers = slices.DeleteFunc(slices.Clone(s.servers), func(r Server) bool {
		at := netip.AddrPortFrom(r.Addr, r.Port)
		err := service.CheckUnicast(r.Addr)
		switch {
		case err == nil && slices.Contains(s.addrs, r.Addr):
			err = fmt.Errorf("it is the VIP itself")
		case err == nil && r.Addr.Is6() != s.ipv6 && !other:
			err = fmt.Errorf("it is of another family than the VIP %s", s.addrs[0])
		case err == nil && seen[at]:
			err = fmt.Errorf("it is given twice")
		case err == nil && s.isRange() && r.Port != 0 && s.method == service.NAT:
			err = fmt.Errorf("a range's servers get packets on the port that the client addressed, not on %d", r.Port)
		}
		seen[at] = true
		if err != nil {
			s.v.lose(r.At, "server "+r.String(), err.Error(), "it is left out")
		}
		return err != nil
	})
	for i := range s.servers {
		s.settlePort(&s.servers[i])
	}
}

// settlePort sets the port on which a server receives packets.
func (s *lvsService) settlePort(r *Server) {
	if r.Port != 0 && r.Port != s.first && s.method != service.NAT {
		s.v.lose(r.At, fmt.Sprintf("port %d of server %s", r.Port, r.Addr), fmt.Sprintf("method %s leaves ports as they are, with LVS, too", s.method), "")
		r.Port = 0
	}
	if r.Port == 0 || s.isRange() {
		r.Port = s.first
	}
}

func (s *lvsService) settleAffinity() {
	s.affinity = s.v.Persistent
	if s.affinity > service.MaxAffinity {
		s.affinity = service.MaxAffinity
		s.v.lose(s.v.At, fmt.Sprintf("persistence of %s", s.v.Persistent), fmt.Sprintf("%s is the most", service.MaxAffinity), "")
	}
	if s.affinity > 0 && s.scheduler == service.DestinationHash {
		s.affinity = 0 // dh sends all clients to one server anyway
	}
	stateless := !service.NeedsFlowTable(s.method, s.scheduler) && s.affinity == 0
	if s.v.OnePacket && !stateless {
		s.v.lose(s.v.At, "one-packet scheduling", "the datagrams of a flow stay with one server",
			"schedulers maglev, sh and dh remember nothing, with any method but nat and fullnat")
	}
}

// settleCheck chooses the check that most servers have, because a Service has only one.
func (s *lvsService) settleCheck() {
	if s.v.Unchecked {
		return
	}
	count := map[service.HealthCheck]int{}
	for _, r := range s.servers {
		if c, ok := s.checkOf(r); ok {
			if count[c]++; count[c] > count[s.check] {
				s.check, s.checked = c, true
			}
		}
	}
	if !s.checked {
		return
	}
	for _, r := range s.servers {
		switch c, ok := s.checkOf(r); {
		case !ok:
			s.v.lose(r.At, "server "+r.Addr.String()+" without a check", "a Service has one check for all of its servers: it is checked like the others", "")
		case c != s.check:
			s.v.lose(r.At, "check of server "+r.Addr.String(), "a Service has one check for all of its servers: it is checked like the others", "")
		}
	}
	if s.isRange() && s.check.Port == 0 {
		s.checked = false
		s.v.lose(s.v.At, "checks", "a range of ports has none of its own to check", "name one by fairlead.io/health-check-port")
	}
}

// checkOf returns a server's check, normalized so that checks of the server's own port are
// equal.
func (s *lvsService) checkOf(r Server) (service.HealthCheck, bool) {
	if r.Check == nil {
		return service.HealthCheck{}, false
	}
	c := *r.Check
	if c.Port == r.Port && !s.isRange() {
		c.Port = 0
	}
	return c, true
}
