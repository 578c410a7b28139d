package pods_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
)

// everyRoleReports queries the router, the reflector and a backend node through their
// sockets, as an operator would.
func (p *pods) everyRoleReports(t *testing.T) {
	prefix := p.Services[web].Prefix
	hops := p.NextHops(web)
	for _, role := range []string{status.RoleRouter, status.RoleReflector} {
		var routes []status.Route
		p.Look(t, &routes, "get", "routes", "--socket", socket.Default(role))
		var received []string
		for _, r := range routes {
			if r.Prefix == prefix && r.Advertised {
				received = append(received, r.NextHop.String())
			}
		}
		slices.Sort(received)
		if !slices.Equal(received, hops) {
			t.Errorf("%s: next hops %v, want %v", role, received, hops)
		}
	}
	table, stderr, code := p.Fairlead(t, "", "get", "routes", "--socket", socket.Default(status.RoleRouter))
	if code != 0 || !strings.Contains(table, fmt.Sprintf("%s nhid ", prefix)) || !strings.Contains(table, "\tnexthop via "+hops[0]+" dev ") {
		t.Errorf("the router's table: %s%s", table, stderr)
	}
	server := p.Servers(web)[0]
	var s status.Status
	p.Look(t, &s, "status", "--socket", cluster.Socket(server.Node.Name))
	if s.DSRAgent == nil || len(s.DSRAgent.Attached) == 0 {
		t.Fatalf("%s reports no DSR agent: %+v", server.Node.Name, s)
	}
	at := netip.AddrPortFrom(server.Addr, fixture.HTTPTarget)
	i := slices.IndexFunc(s.DSRAgent.Entries, func(e status.Entry) bool {
		return e.Server == at && e.VIP == p.tunnel.HTTP().Addr()
	})
	if i < 0 || s.DSRAgent.Entries[i].Flows == 0 || s.DSRAgent.Counters["tunnel-delivered"] == 0 {
		t.Errorf("%s serves %s, but reports %+v", server.Node.Name, at, s.DSRAgent)
	}
}
