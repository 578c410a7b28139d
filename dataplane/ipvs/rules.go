package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/service"
)

// Fairlead's chains other than guardChain: one marks packets for a port range or a whole
// address, the other changes the source of fullnat packets.
const (
	markChain = "FAIRLEAD-MARK"
	natChain  = "FAIRLEAD-FULLNAT"
)

// rule is a line of one of the chains. In markChain it applies to packets to id: sets the
// mark, or without one leaves the chain. In natChain packets of id, or with the mark,
// leave the chain, and the zero rule changes the source of all others. In guardChain
// packets to id go to another chain, or leave; there, packets from a prefix are dropped,
// or leave.
type rule struct {
	id    service.Key
	mark  uint32
	from  netip.Prefix
	drop  bool
	to    int // the number of the next chain
	chain int // the number of its own chain
}

// markRules returns the rules of markChain: on VIPs with ranges, packets to single ports
// leave it, and of the other frontends the narrowest applies last.
func (d *DataPlane) markRules(v6 bool) (rules []rule) {
	vips := map[netip.Addr]bool{}
	for mark, k := range d.marks {
		if k.VIP.IsValid() && k.VIP.Is6() == v6 {
			rules = append(rules, rule{id: k, mark: mark})
			vips[k.VIP] = true
		}
	}
	for a := range vips {
		for _, k := range d.vips[a].keys {
			if !k.Range() {
				rules = append(rules, rule{id: k})
			}
		}
	}
	slices.SortFunc(rules, compareRules)
	return rules
}

// natRules returns the rules of natChain: none without fullnat.
func (d *DataPlane) natRules(v6 bool) (rules []rule) {
	if d.fullNATs[familyIndex(v6)] == 0 {
		return nil
	}
	for k := range d.nats {
		switch {
		case k.VIP.Is6() != v6:
		case k.Range():
			rules = append(rules, rule{mark: d.programmed[k].mark})
		default:
			rules = append(rules, rule{id: k})
		}
	}
	slices.SortFunc(rules, compareRules)
	return append(rules, rule{})
}

func compareRules(a, b rule) int {
	return cmp.Or(cmp.Compare(a.breadth(), b.breadth()), a.id.Compare(b.id), cmp.Compare(a.mark, b.mark))
}

// breadth orders rules: those that leave the chain, whole addresses, ranges.
func (r rule) breadth() int {
	switch {
	case r.mark == 0:
		return 0
	case r.id.Whole():
		return 1
	}
	return 2
}

// markLine formats a rule of markChain like iptables-save.
func markLine(r rule) string {
	line := "-A " + markChain + matching(r.id)
	if r.mark == 0 {
		return line + " -j RETURN"
	}
	return line + fmt.Sprintf(" -j MARK --set-xmark %#x/0xffffffff", r.mark)
}

// matching formats the match for packets to a frontend.
func matching(k service.Key) string {
	text := " -d " + netip.PrefixFrom(k.VIP, k.VIP.BitLen()).String()
	if p := strings.ToLower(k.Protocol.String()); k.Protocol != service.AnyProtocol {
		text += fmt.Sprintf(" -p %s -m %s --dport %d", p, p, k.Port)
		if k.Range() {
			text += fmt.Sprintf(":%d", k.Last)
		}
	}
	return text
}

// natLine formats a rule of natChain.
func natLine(r rule) string {
	switch {
	case r == rule{}:
		return "-A " + natChain + " -m ipvs --vmethod MASQ -j MASQUERADE"
	case r.mark != 0:
		return fmt.Sprintf("-A %s -m mark --mark %#x -j RETURN", natChain, r.mark)
	}
	return fmt.Sprintf("-A %s -m ipvs --vproto %d --vaddr %s --vport %d -j RETURN", natChain,
		uint8(r.id.Protocol), netip.PrefixFrom(r.id.VIP, r.id.VIP.BitLen()), r.id.Port)
}

// readRule parses a line of iptables-save that is in a chain, or in one it refers to. It
// returns false for others.
func readRule(chain, line string) (r rule, ok bool) {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "-A" {
		return r, false
	}
	if r.chain, ok = chainNumber(chain, words[1]); !ok {
		return r, false
	}
	ported := false
	var err error
	for i := 2; i+1 < len(words) && err == nil; i++ {
		switch value := words[i+1]; words[i] {
		case "-d", "--vaddr":
			r.id.VIP, err = readHost(value)
		case "-p":
			err = r.id.Protocol.UnmarshalText([]byte(strings.ToUpper(value)))
		case "--vproto":
			var n uint64
			n, err = strconv.ParseUint(value, 10, 8)
			r.id.Protocol = service.Protocol(n)
		case "--dport", "--vport":
			ported = true
			err = readPorts(value, &r.id)
		case "-s":
			r.from, err = netip.ParsePrefix(value)
		case "-g":
			r.to, _ = chainNumber(chain, value)
		case "-j":
			r.drop = value == "DROP"
		case "--set-xmark", "--mark":
			var n uint64
			text, _, _ := strings.Cut(value, "/")
			n, err = strconv.ParseUint(text, 0, 32)
			r.mark = uint32(n)
		}
	}
	if r.id.VIP.IsValid() && !ported {
		r.id.Last = 65535
	}
	return r, err == nil
}

// chainNumber is the inverse of chainName. It returns false for another chain's name.
func chainNumber(chain, name string) (n int, ok bool) {
	if name == chain {
		return 0, true
	}
	digits, ok := strings.CutPrefix(name, chain+"-")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0
}

func readHost(text string) (netip.Addr, error) {
	host, _, _ := strings.Cut(text, "/")
	return netip.ParseAddr(host)
}

func readPorts(text string, k *service.Key) error {
	first, last, ranged := strings.Cut(text, ":")
	n, err := strconv.ParseUint(first, 10, 16)
	k.Port = uint16(n)
	if ranged && err == nil {
		n, err = strconv.ParseUint(last, 10, 16)
		k.Last = uint16(n)
	}
	return err
}
