package ipvs

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

func key(vip string, first, last uint16, p service.Protocol) service.Key {
	return service.Key{VIP: netip.MustParseAddr(vip), Port: first, Last: last, Protocol: p}
}

// Lines as printed by iptables-save 1.8.9.
func TestRules(t *testing.T) {
	for line, r := range map[string]rule{
		"-A FAIRLEAD-MARK -d 10.1.1.1/32 -p tcp -m tcp --dport 80 -j RETURN":                                        {id: key("10.1.1.1", 80, 0, service.TCP)},
		"-A FAIRLEAD-MARK -d 10.1.1.1/32 -p udp -m udp --dport 8000:8999 -j MARK --set-xmark 0xfa100001/0xffffffff": {id: key("10.1.1.1", 8000, 8999, service.UDP), mark: 0xfa100001},
		"-A FAIRLEAD-MARK -d 2001:db8::1/128 -p sctp -m sctp --dport 1:9 -j MARK --set-xmark 0xfa10ffff/0xffffffff": {id: key("2001:db8::1", 1, 9, service.SCTP), mark: 0xfa10ffff},
		"-A FAIRLEAD-MARK -d 10.1.1.1/32 -j MARK --set-xmark 0xfa100002/0xffffffff":                                 {id: key("10.1.1.1", 0, 65535, service.AnyProtocol), mark: 0xfa100002},
	} {
		if got := markLine(r); got != line {
			t.Errorf("\n got %s\nwant %s", got, line)
		}
		if got, ok := readRule(markChain, line); !ok || got != r {
			t.Errorf("%s: read as %+v, %v", line, got, ok)
		}
	}
	for line, r := range map[string]rule{
		"-A FAIRLEAD-FULLNAT -m ipvs --vproto 6 --vaddr 10.1.1.1/32 --vport 80 -j RETURN": {id: key("10.1.1.1", 80, 0, service.TCP)},
		"-A FAIRLEAD-FULLNAT -m mark --mark 0xfa100003 -j RETURN":                         {mark: 0xfa100003},
		"-A FAIRLEAD-FULLNAT -m ipvs --vmethod MASQ -j MASQUERADE":                        {},
	} {
		if got := natLine(r); got != line {
			t.Errorf("\n got %s\nwant %s", got, line)
		}
		if got, ok := readRule(natChain, line); !ok || got != r {
			t.Errorf("%s: read as %+v, %v", line, got, ok)
		}
	}
	for line, r := range map[string]rule{
		"-A FAIRLEAD-GUARD -d 10.1.1.1/32 -p tcp -m tcp --dport 80 -j RETURN":                {id: key("10.1.1.1", 80, 0, service.TCP)},
		"-A FAIRLEAD-GUARD -d 2001:db8::1/128 -p udp -m udp --dport 1:9 -g FAIRLEAD-GUARD-2": {id: key("2001:db8::1", 1, 9, service.UDP), to: 2},
		"-A FAIRLEAD-GUARD -d 10.1.1.1/32 -g FAIRLEAD-GUARD-12":                              {id: key("10.1.1.1", 0, 65535, service.AnyProtocol), to: 12},
		"-A FAIRLEAD-GUARD-2 -s 192.168.0.0/24 -j RETURN":                                    {chain: 2, from: netip.MustParsePrefix("192.168.0.0/24")},
		"-A FAIRLEAD-GUARD-2 -s fd02::9/128 -j DROP":                                         {chain: 2, from: netip.MustParsePrefix("fd02::9/128"), drop: true},
		"-A FAIRLEAD-GUARD-12 -j DROP":                                                       {chain: 12, drop: true},
	} {
		if got := guardLine(r); got != line {
			t.Errorf("\n got %s\nwant %s", got, line)
		}
		if got, ok := readRule(guardChain, line); !ok || got != r {
			t.Errorf("%s: read as %+v, %v", line, got, ok)
		}
	}
	for _, line := range []string{"", "COMMIT", "-A FAIRLEAD-MARK-0 -j DROP", "-A FAIRLEAD-MARK-x -j DROP", "-A FAIRLEAD-MARKED -j DROP", ":FAIRLEAD-MARK - [0:0]", "-A PREROUTING -j FAIRLEAD-MARK", "-A FAIRLEAD-MARK -d x -j RETURN", "-A FAIRLEAD-MARK -d 10.1.1.1/32 --dport x"} {
		if r, ok := readRule(markChain, line); ok {
			t.Errorf("%q was read as %+v", line, r)
		}
	}
}

// marked returns the mark of a packet by the rules' order. dataplane/fake must find the
// same frontend.
func marked(rules []rule, k service.Key) (mark uint32) {
	for _, r := range rules {
		whole := r.id.Whole()
		if r.id.VIP != k.VIP || !whole && (r.id.Protocol != k.Protocol || k.Port < r.id.Port || k.Port > max(r.id.Port, r.id.Last)) {
			continue
		}
		if r.mark == 0 {
			return mark
		}
		mark = r.mark
	}
	return mark
}

func TestNarrowestRangeHasThePacket(t *testing.T) {
	d := &DataPlane{programmed: map[service.Key]*record{}, vips: map[netip.Addr]*vip{}, marks: map[uint32]service.Key{}, nats: map[service.Key]bool{}}
	one, some, whole := key("10.1.1.1", 80, 0, service.TCP), key("10.1.1.1", 8000, 8999, service.TCP), key("10.1.1.1", 0, 65535, service.AnyProtocol)
	elsewhere := key("10.1.1.2", 80, 0, service.TCP)
	for mark, k := range map[uint32]service.Key{0: one, 7: whole, 9: some, 1: elsewhere} {
		r := &record{servers: []server{{}}}
		if k.Range() {
			r.mark = mark
		}
		d.keep(k, r)
		d.vipOf(k)
	}
	rules := d.markRules(false)
	for k, want := range map[service.Key]uint32{
		one: 0, elsewhere: 0, key("10.1.1.1", 81, 0, service.TCP): 7, key("10.1.1.1", 80, 0, service.UDP): 7,
		key("10.1.1.1", 8000, 0, service.TCP): 9, key("10.1.1.1", 8999, 0, service.TCP): 9, key("10.1.1.1", 8500, 0, service.UDP): 7,
	} {
		if got := marked(rules, k); got != want {
			t.Errorf("%s gets mark %d, want %d", k, got, want)
		}
	}
	if rules := d.markRules(true); rules != nil {
		t.Errorf("rules of IPv6: %v", rules)
	}
	if rules := d.natRules(false); rules != nil {
		t.Errorf("without fullnat: %v", rules)
	}
	d.fullNATs[0] = 1
	var lines []string
	for _, r := range d.natRules(false) {
		lines = append(lines, natLine(r))
	}
	if last := lines[len(lines)-1]; len(lines) != 5 || !strings.Contains(last, "MASQUERADE") || !slices.Contains(lines, "-A FAIRLEAD-FULLNAT -m mark --mark 0x9 -j RETURN") {
		t.Errorf("with fullnat: %q", lines)
	}
}

func TestReadFlow(t *testing.T) {
	for line, want := range map[string]string{
		"Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData":                                          "",
		"TCP C0A80001 1234 0A010101 0050 AC100101 1F90 ESTABLISHED     890":                                                        "192.168.0.1:4660 10.1.1.1:80 172.16.1.1:8080 TCP established 10s",
		"UDP C0A80001 1234 0A010101 0050 AC100101 0050 UDP             300":                                                        "192.168.0.1:4660 10.1.1.1:80 172.16.1.1:80 UDP udp 0s",
		"TCP C0A80001 0000 0A010101 0050 AC100101 1F90 NONE            890":                                                        "", // a client's template
		"IP  C0A80001 0000 00000001 0000 AC100101 0000 NONE            890":                                                        "",
		"TCP 2001:0db8:0000:0000:0000:0000:0000:0005 1234 2001:0db8:0000:0000:0000:0000:0000:0001 0050 AC100101 0050 FIN_WAIT 100": "[2001:db8::5]:4660 [2001:db8::1]:80 172.16.1.1:80 TCP finishing 20s",
	} {
		f, ok := readFlow(line)
		got := ""
		if ok {
			got = strings.Join([]string{f.Client.String(), f.VIP.String(), f.Server.String(), f.Protocol.String(), f.State, f.Idle.String()}, " ")
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got, want)
		}
	}
}

// The order of rule changes depends on whether another frontend would get the packets.
func TestInRange(t *testing.T) {
	d := &DataPlane{vips: map[netip.Addr]*vip{}}
	some, whole := key("10.1.1.1", 8000, 8999, service.TCP), key("10.1.1.2", 0, 65535, service.AnyProtocol)
	d.vipOf(some)
	d.vipOf(whole)
	for k, want := range map[service.Key]bool{
		some: false, whole: false, key("10.1.1.1", 8000, 0, service.TCP): true, key("10.1.1.1", 8999, 0, service.TCP): true,
		key("10.1.1.1", 8500, 0, service.UDP): false, key("10.1.1.1", 9000, 0, service.TCP): false,
		key("10.1.1.2", 80, 0, service.SCTP): true, key("10.1.1.2", 80, 90, service.TCP): true, key("10.1.1.3", 8000, 0, service.TCP): false,
	} {
		if got := d.inRange(k); got != want {
			t.Errorf("%s would be another's: %v, want %v", k, got, want)
		}
	}
}
