package packet

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/netns"
)

// rules are kube-proxy's, as far as needed: packets to a service's addresses and ports go
// to an endpoint, with the node as the source.
type rules struct {
	c      *nftables.Conn
	tables []*nftables.Table
}

func (w *world) kubeProxy(target netip.AddrPort, services ...netip.AddrPort) (r rules) {
	w.t.Helper()
	var err error
	if r.c, err = nftables.New(nftables.WithNetNSFd(w.nodeA.FD())); err != nil {
		w.t.Fatal(err)
	}
	r.translate(target, services)
	if err := r.c.Flush(); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (r *rules) translate(target netip.AddrPort, services []netip.AddrPort) {
	table := r.table("kube-proxy", target.Addr())
	r.tables = append(r.tables, table)
	before := r.c.AddChain(&nftables.Chain{
		Table: table, Name: "services", Hooknum: nftables.ChainHookPrerouting, Type: nftables.ChainTypeNAT, Priority: nftables.ChainPriorityNATDest,
	})
	for _, s := range services {
		r.c.AddRule(&nftables.Rule{Table: table, Chain: before, Exprs: append(to(s),
			&expr.Immediate{Register: 1, Data: target.Addr().AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(target.Port())},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(table.Family), RegAddrMin: 1, RegProtoMin: 2, Specified: true},
		)})
	}
	r.masquerade(table, target)
	// Like a network plugin's: the kernel continues existing translations only while
	// it has some rule for it.
	r.masquerade(r.table("plugin", target.Addr()), netip.AddrPortFrom(target.Addr(), 1))
}

func (r *rules) table(name string, a netip.Addr) *nftables.Table {
	family := map[bool]nftables.TableFamily{true: nftables.TableFamilyIPv4, false: nftables.TableFamilyIPv6}[a.Is4()]
	return r.c.AddTable(&nftables.Table{Family: family, Name: name})
}

func (r *rules) masquerade(table *nftables.Table, whatGoesTo netip.AddrPort) {
	chain := r.c.AddChain(&nftables.Chain{
		Table: table, Name: "masquerading", Hooknum: nftables.ChainHookPostrouting, Type: nftables.ChainTypeNAT, Priority: nftables.ChainPriorityNATSource,
	})
	r.c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(to(whatGoesTo), &expr.Masq{})})
}

// to matches packets to an address and port of TCP.
func to(a netip.AddrPort) []expr.Any {
	const at4, at6 = 16, 24 // of the destination in an IP header
	at := uint32(at4)
	if a.Addr().Is6() {
		at = at6
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: uint32(a.Addr().BitLen() / 8)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.Addr().AsSlice()},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(a.Port())},
	}
}

func (r *rules) remove(w *world) {
	w.t.Helper()
	for _, table := range r.tables {
		r.c.DelTable(table)
	}
	if err := r.c.Flush(); err != nil {
		w.t.Fatal(err)
	}
}

// TestTakesOverFromKubeProxy: connections made through kube-proxy's rules continue next
// to the programs, and after the rules are removed. New ones use the programs.
func TestTakesOverFromKubeProxy(t *testing.T) {
	families(t, func(t *testing.T, v6 family) {
		for name, target := range map[string]netip.Addr{"A": podAAddr, "B": podBAddr} {
			t.Run("to "+name, func(t *testing.T) { takeOver(t, v6, name, target) })
		}
	})
}

func takeOver(t *testing.T, v6 family, name string, target netip.Addr) {
	type connection struct {
		*http.Client
		to netip.AddrPort
	}
	var open []connection
	var kubeProxy rules
	ask := func(w *world) {
		t.Helper()
		for _, c := range open {
			if got, _ := w.ask(c.Client, c.to); got != name {
				w.t.Fatalf("%s answered on a connection of kube-proxy's to %s", got, name)
			}
		}
	}
	w := buildWorld(t, tc.Open, func(w *world) {
		w.do(w.nodeA, func() error {
			return netns.WriteSysctl(map[family]string{false: "net.ipv4.ip_forward", true: "net.ipv6.conf.all.forwarding"}[v6], "1")
		})
		services := []netip.AddrPort{v6.at(clusterIP, 80), v6.at(loadIP, 80), v6.at(nodeAAddr, 30080)}
		kubeProxy = w.kubeProxy(v6.at(target, 8080), services...)
		for _, ns := range []*netns.NS{w.client, w.podC} {
			for _, at := range services {
				open = append(open, connection{w.oneConnection(ns), at})
			}
		}
		ask(w)
	})
	w.expose(v6, "C", "C")
	ask(w)
	w.want(w.client, v6.at(loadIP, 80), "C", v6.of(clientAddr), false)
	kubeProxy.remove(w)
	ask(w)
	w.want(w.client, v6.at(loadIP, 80), "C", v6.of(clientAddr), false)
}

// oneConnection is a browser that never makes a second one. Its timeout covers loading
// the programs.
func (w *world) oneConnection(ns *netns.NS) *http.Client {
	c := w.browser(ns)
	transport := c.Transport.(*http.Transport)
	dial, dialled := transport.DialContext, false
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialled {
			return nil, errors.New("the connection is lost")
		}
		dialled = true
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Time{})
	}
	return c
}
