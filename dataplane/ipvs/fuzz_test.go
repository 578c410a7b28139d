package ipvs

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzReplies: a reply of the kernel is parsed or rejected, and the parsed service
// converts to the same message.
func FuzzReplies(f *testing.F) {
	r := recordOf(web(1), 0, 0)
	f.Add([]byte(serviceMessage(cmdNewService, r.virtual)[16:]))
	f.Add([]byte(destMessage(cmdNewDest, r.serviceID, r.servers[0])[16:]))
	f.Fuzz(func(t *testing.T, reply []byte) {
		fuzzlimit.Time(t)
		v, _, err := readService(reply)
		s, _, err2 := readServer(reply, v.serviceID)
		if len(reply) < genlHeader && (err == nil || err2 == nil) {
			t.Error("too short, but read")
		}
		if err == nil && (v.mark != 0 || v.vip.IsValid()) {
			if again, _, err := readService(serviceMessage(cmdNewService, v)[16:]); err != nil || again != v {
				t.Errorf("%+v is written and read as %+v, %v", v, again, err)
			}
		}
		if err2 == nil && s.addr.IsValid() {
			if again, _, err := readServer(destMessage(cmdNewDest, v.serviceID, s)[16:], v.serviceID); err != nil || again != s {
				t.Errorf("%+v is written and read as %+v, %v", s, again, err)
			}
		}
	})
}

// FuzzFlow: a line of /proc/net/ip_vs_conn that is a flow has a client and a VIP with
// ports, and parses the same from the line that the kernel would print.
func FuzzFlow(f *testing.F) {
	for _, line := range []string{
		"Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData",
		"TCP C0000207 04D2 0A010101 0050 AC100501 1F90 ESTABLISHED     899",
		"UDP [2001:0db8:0000:0000:0000:0000:0000:0007] 04D2 [fd00::1] 0035 [fd00::2] 0035 UDP 299",
		"TCP C0000207 0000 0A010101 0050 AC100501 1F90 NONE 1", "SCTP C0000207 04D2 0A010101 0050 AC100501 1F90 NEWSTATE 4294967295", "IP 1 2 3 4 5 6 7 8",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		fuzzlimit.Time(t)
		flow, ok := readFlow(line)
		if !ok {
			return
		}
		if flow.Client.Port() == 0 || !flow.VIP.IsValid() || !flow.Server.IsValid() || flow.State == "" || flow.Idle < 0 || flow.Protocol == service.AnyProtocol {
			t.Errorf("%q is %+v", line, flow)
		}
		if flow.Client.Addr().Zone() != "" || flow.VIP.Addr().Zone() != "" || flow.Server.Addr().Zone() != "" {
			return // the kernel prints none
		}
		end := func(a netip.AddrPort) string { return fmt.Sprintf("[%s] %04X", a.Addr(), a.Port()) }
		printed := fmt.Sprintf("%s %s %s %s ESTABLISHED 0", flow.Protocol, end(flow.Client), end(flow.VIP), end(flow.Server))
		if again, ok := readFlow(printed); !ok || again.Client != flow.Client || again.VIP != flow.VIP || again.Server != flow.Server || again.Protocol != flow.Protocol {
			t.Errorf("%q is %+v, and %q is %+v", line, flow, printed, again)
		}
	})
}

// FuzzRule: a line of iptables-save that sets a mark or leaves a chain is formatted as a
// line that parses the same.
func FuzzRule(f *testing.F) {
	vip := netip.MustParseAddr("10.1.1.1")
	f.Add(markLine(rule{id: service.Key{VIP: vip, Port: 80, Last: 90, Protocol: service.TCP}, mark: 7}))
	f.Add(markLine(rule{id: service.Key{VIP: vip, Last: 65535}}))
	f.Add(natLine(rule{id: service.Key{VIP: vip, Port: 80, Protocol: service.UDP}}))
	f.Add(natLine(rule{}))
	f.Add("-A FAIRLEAD-MARK -d fd00::1/128 -p sctp -m sctp --dport 1:2 -j MARK --set-xmark 0xffffffff/0xffffffff")
	f.Add("-A FAIRLEAD-MARK-2 -s 10.0.0.0/8 -g FAIRLEAD-MARK-3 -j DROP")
	f.Fuzz(func(t *testing.T, line string) {
		fuzzlimit.Time(t)
		r, ok := readRule(markChain, line)
		if !ok || !r.id.VIP.IsValid() || r.id.VIP.Zone() != "" || r.from.IsValid() || r.drop || r.to != 0 || r.chain != 0 || !possible(r.id) {
			return
		}
		if again, ok := readRule(markChain, markLine(r)); !ok || again != r {
			t.Errorf("%q is %+v, and %q is %+v", line, r, markLine(r), again)
		}
	})
}

// possible reports whether markLine can receive a key: a frontend has either a port, or a
// port range, or all protocols and ports.
func possible(k service.Key) bool {
	if k.Protocol == service.AnyProtocol {
		return k.Port == 0 && k.Last == 65535
	}
	return k.Port != 0 && (k.Last == 0 || k.Last > k.Port)
}
