package config

import (
	"slices"
	"strings"
	"testing"
)

func TestRouterShadowProtocols(t *testing.T) {
	r, err := Router{ShadowProtocols: []string{"bgp", "bird", "196"}, Metric: 10, Accept: []string{"10.1.0.0/16", "10.2.0.1"}}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.ShadowProtocols, []uint8{186, 12, 196}) || len(r.Accept) != 2 || r.Accept[1].String() != "10.2.0.1/32" {
		t.Errorf("resolved to %v, %v", r.ShadowProtocols, r.Accept)
	}
}

func TestRoutingIsRefusedByFlag(t *testing.T) {
	for _, c := range []struct {
		config Router
		want   string
	}{
		{Router{}, "--peer: required: set a reflector"},
		{Router{ShadowProtocols: []string{"bgp"}, Metric: 10, Peers: []string{"10.0.0.109"}}, "--shadow-protocol: cannot be combined with --peer"},
		{Router{ShadowProtocols: []string{"quagga"}, Metric: 10}, `--shadow-protocol: "quagga" is not the protocol of a routing daemon`},
		{Router{ShadowProtocols: []string{"2"}, Metric: 10}, `--shadow-protocol: "2" is not the protocol of a routing daemon`},
		{Router{ShadowProtocols: []string{"bgp"}}, "--metric: 0 is not a positive"},
		{Router{Peers: []string{"10.0.0.109"}, Metric: 20}, "--router-id: required: set an IPv4 address of this machine"},
		{Router{Peers: []string{"10.0.0.109"}, AS: 65535}, "--local-asn: 65535 is reserved"},
		{Router{Peers: []string{"10.0.0.109"}, RouterID: "::1"}, `--router-id: "::1" is not a valid IPv4 address`},
		{Router{Peers: []string{"10.0.0.109"}, Metric: 1 << 32}, "--metric: 4294967296 is not a positive 32-bit number"},
		{Router{ShadowProtocols: []string{"bgp"}, Table: -1}, "--table: -1 is not a routing table"},
		{Router{Peers: []string{"10.0.0.109"}, Table: 1 << 32}, "--table: 4294967296 is not a routing table"},
		{Router{Peers: []string{"10.0.0.109"}, Metric: 20, Accept: []string{"10.1.1.1/16"}}, "--accept-prefixes: 10.1.1.1/16 has host bits set"},
	} {
		if _, err := c.config.Resolve(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	_, err := Reflector{Clients: []string{"10.0.0.0/24"}, Routers: []string{"10.0.0.1"}, MaxClients: -1}.Resolve()
	if err == nil || !strings.Contains(err.Error(), "--max-clients: -1 is negative") {
		t.Errorf("error %v", err)
	}
}
