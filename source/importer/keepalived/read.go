package keepalived

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/importer"
)

// virtual is a parsed virtual_server.
type virtual struct {
	importer.VirtualServer
	protocol service.Protocol
	way      way
	weight   uint32
	timing
	servers []*server
}

// lose records a loss of a virtual server.
func (v *virtual) lose(n *node, why, fix string) { v.loseAs(n, n.title(), why, fix) }

func (v *virtual) loseAs(n *node, what, why, fix string) {
	v.Losses = append(v.Losses, importer.Loss{At: n.at, What: what, Why: why, Fix: fix})
}

// virtualServer converts a block to Services.
func (r *reader) virtualServer(n *node) {
	v := &virtual{protocol: service.TCP, way: way{method: service.NAT}, weight: 1}
	v.At = n.at
	for _, c := range n.block {
		v.statement(c)
	}
	if v.Listeners = r.listeners(n, v.protocol); len(v.Listeners) == 0 {
		return
	}
	if n.arg(1) == "group" {
		v.Name = n.arg(2)
	} else if n.arg(1) == "fwmark" {
		v.Name = "mark-" + n.arg(2)
	}
	for _, s := range v.servers {
		v.Servers = append(v.Servers, s.finish(v))
	}
	for _, l := range v.Listeners {
		r.served[l.Addr] = true
	}
	r.lvs.Add(v.VirtualServer)
}

// listeners returns the addresses of a virtual server, or reports why it has no addresses.
func (r *reader) listeners(n *node, p service.Protocol) (all []importer.Listener) {
	what := n.String()
	switch n.arg(1) {
	case "fwmark":
		return r.mark(n, n.arg(2))
	case "group":
		g := r.groups[n.arg(2)]
		if g == nil {
			r.lose(n.at, what, "there is no virtual_server_group of that name", "it is left out")
			return nil
		}
		for _, c := range g.block {
			if c.word() == "fwmark" {
				all = append(all, r.mark(c, c.arg(1))...)
				continue
			}
			all = append(all, r.addresses(c, c.words, p)...)
		}
		if len(all) == 0 {
			r.lose(n.at, what, "its group has no address", "it is left out")
		}
		return all
	}
	return r.addresses(n, n.words[1:], p)
}

// mark returns the addresses of a firewall mark.
func (r *reader) mark(n *node, text string) []importer.Listener {
	number, err := strconv.ParseUint(text, 0, 32)
	all := r.options.Marks[uint32(number)]
	switch {
	case err != nil:
		r.lose(n.at, n.String(), "that is not a mark", "it is left out")
		return nil
	case len(all) == 0:
		r.lose(n.at, n.String(), "the rules that set a mark are in no keepalived.conf",
			fmt.Sprintf("specify what they match, such as --mark %d=10.1.1.1:80; it is left out", number))
	}
	return all
}

// maxAddresses limits the addresses of a range.
const maxAddresses = 1024

// addresses parses "10.1.1.1 80", "10.1.1.1-5 80", "10.1.1.1-10.1.2.5 80" and "10.1.1.0/28
// 80". No port, or port 0, means every port.
func (r *reader) addresses(n *node, words []string, p service.Protocol) (all []importer.Listener) {
	refuse := func(why string) []importer.Listener {
		r.lose(n.at, n.String(), why, "it is left out")
		return nil
	}
	if len(words) == 0 {
		return refuse("it has no address")
	}
	var port uint64
	if len(words) > 1 {
		var err error
		if port, err = strconv.ParseUint(words[1], 10, 16); err != nil {
			return refuse(fmt.Sprintf("%q is not a port", words[1]))
		}
	}
	first, last, err := addressRange(words[0])
	if err != nil {
		return refuse(err.Error())
	}
	for a := first; ; a = a.Next() {
		if len(all) == maxAddresses {
			return refuse(fmt.Sprintf("it has more than %d addresses, each of which would be announced", maxAddresses))
		}
		all = append(all, importer.Listener{Addr: a, Port: uint16(port), Protocol: p})
		if a == last {
			return all
		}
	}
}

func addressRange(text string) (first, last netip.Addr, err error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		p = p.Masked()
		last = p.Addr()
		for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
			last = withBit(last, bit)
		}
		return p.Addr(), last, nil
	}
	low, high, several := strings.Cut(text, "-")
	if first, err = netip.ParseAddr(low); err != nil {
		return first, last, fmt.Errorf("%q is not an IP address", low)
	}
	if !several {
		return first, first, nil
	}
	if !strings.ContainsAny(high, ".:") {
		high = low[:strings.LastIndexAny(low, ".:")+1] + high
	}
	if last, err = netip.ParseAddr(high); err != nil || last.Is4() != first.Is4() || last.Less(first) {
		return first, last, fmt.Errorf("%q is not a range of addresses", text)
	}
	return first, last, nil
}

// withBit sets a bit, counted from the left.
func withBit(a netip.Addr, bit int) netip.Addr {
	b := a.AsSlice()
	b[bit/8] |= 0x80 >> (bit % 8)
	a, _ = netip.AddrFromSlice(b)
	return a
}

// statement reads a statement of a virtual_server.
func (v *virtual) statement(n *node) {
	word := n.word()
	if word != "real_server" {
		v.alone(n)
	}
	switch {
	case virtualWords[word] != nil:
		virtualWords[word](v, n)
	case virtualLosses[word] != [2]string{}:
		why := virtualLosses[word]
		if !isOff(n) {
			v.lose(n, why[0], why[1])
		}
	case v.timing.read(v, n):
	default:
		v.lose(n, "the word is not known here", "if it matters, see what it does in keepalived.conf(5)")
	}
}

// alone reports unread trailing content of a statement: words of another statement on the
// same line, or an unexpected block.
func (v *virtual) alone(n *node) {
	const most = 2 // the word and its value
	if many := slices.Contains(wordy, n.word()); n.braces || len(n.words) > most && !many {
		v.loseAs(n, n.String(), "what stands behind it is not read", "write one statement a line")
	}
}

// wordy are statements with more than one value.
var wordy = []string{
	"lb_kind", "lvs_method", "status_code", "sorry_server", "sorry_server_lvs_method", "quorum_up", "quorum_down", "notify_up", "notify_down",
}

// isOff reports whether a statement disables something.
func isOff(n *node) bool {
	switch n.arg(1) {
	case "off", "no", "false":
		return true
	}
	return false
}

// virtualWords are the supported words of a virtual_server.
var virtualWords = map[string]func(*virtual, *node){
	"lb_algo": readScheduler, "lvs_sched": readScheduler, "lb_kind": readMethod, "lvs_method": readMethod,
	"protocol": (*virtual).readProtocol, "persistence_timeout": (*virtual).readPersistence,
	"persistence_granularity": (*virtual).readGranularity, "quorum": (*virtual).readQuorum,
	"real_server": (*virtual).readServer, "weight": func(v *virtual, n *node) { v.weight = readWeight(v, n) },
	"ops": func(v *virtual, _ *node) { v.OnePacket = true }, "sh-port": hashPort, "mh-port": hashPort, "flag-2": hashPort,
	// Fairlead always does this, or the addresses imply it.
	"alpha": nothing, "hashed": nothing, "ip_family": nothing, "sh-fallback": nothing, "mh-fallback": nothing, "flag-1": nothing,
}

func readScheduler(v *virtual, n *node) { v.Scheduler = n.arg(1) }
func readMethod(v *virtual, n *node)    { v.way.read(v, n, n.words[1:]) }
func hashPort(v *virtual, _ *node)      { v.HashPort = true }
func nothing(*virtual, *node)           {}

// virtualLosses are words of a virtual_server without a counterpart.
var virtualLosses = map[string][2]string{
	"sorry_server":            {"Fairlead has no server for when all others are away: the Service is withdrawn then", "let another balancer announce a shorter prefix around the address"},
	"sorry_server_inhibit":    {"there is no sorry server", "leave it out"},
	"sorry_server_lvs_method": {"there is no sorry server", "leave it out"},
	"hysteresis":              {"there is no quorum", "leave it out"},
	"quorum_up":               noScripts,
	"quorum_down":             noScripts,
	"notify_up":               noScripts,
	"notify_down":             noScripts,
	"smtp_alert":              {"Fairlead sends no mail", "watch fairlead status -o json"},
	"omega":                   {"there is nobody to notify", "watch fairlead status -o json"},
	"ha_suspend":              {"every balancer is active and checks the servers", "leave it out"},
	"snmp_name":               {"there is no SNMP", "leave it out"},
	"persistence_engine":      {"clients are identified only by their addresses", "leave it out"},
	"flag-3":                  {"Fairlead's schedulers have no such flag", "leave it out"},
}

var noScripts = [2]string{"Fairlead runs no scripts", "watch fairlead status -o json"}

func (v *virtual) readProtocol(n *node) {
	p, ok := importer.ParseProtocol(n.arg(1))
	if !ok {
		v.lose(n, "it is not known", "it is taken for TCP")
		p = service.TCP
	}
	v.protocol = p
}

func (v *virtual) readPersistence(n *node) {
	const usual = 6 * time.Minute // keepalived's default
	v.Persistent = usual
	if n.arg(1) == "" {
		return
	}
	seconds, err := strconv.ParseUint(n.arg(1), 10, 31)
	if err != nil || seconds == 0 {
		v.lose(n, "that is not a number of seconds", fmt.Sprintf("%s is used", usual))
		return
	}
	v.Persistent = time.Duration(seconds) * time.Second
}

func (v *virtual) readGranularity(n *node) {
	if v.Persistent == 0 {
		v.readPersistence(&node{at: n.at})
	}
	if m := n.arg(1); m != "255.255.255.255" && m != "128" {
		v.lose(n, "affinity is of single clients, not of networks", "scheduler dh sends all clients of a VIP to one server")
	}
}

func (v *virtual) readQuorum(n *node) {
	if n.arg(1) != "1" {
		v.lose(n, "a Service is announced as long as one server is healthy", "leave it out")
	}
}
