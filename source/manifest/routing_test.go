package manifest

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
)

const routes = `apiVersion: fairlead.io/v1alpha1
kind: BGPPeer
metadata: {name: tor-1}
spec:
  peerAddress: 10.0.0.109
  peerASN: 65110
  passwordSecretRef: bgp
  ttlSecurity: 1
  nodeSelector: {matchLabels: {rack: "1"}}
---
apiVersion: fairlead.io/v1alpha1
kind: BGPPeer
metadata: {name: tor-2}
spec: {peerAddress: 10.0.0.110, nodeSelector: {matchLabels: {rack: "2"}}}
---
apiVersion: v1
kind: Secret
metadata: {name: bgp}
stringData:
  password: sesame
---
apiVersion: fairlead.io/v1alpha1
kind: AddressPool
metadata: {name: web}
spec: {addresses: [10.1.1.0/24]}
---
apiVersion: fairlead.io/v1alpha1
kind: Advertisement
metadata: {name: edge}
spec:
  pools: [web]
  serviceSelector: {matchLabels: {tier: gold}}
  communities: ["65000:1", no-export]
  med: 10
  peers: [tor-1]
`

const gold = `apiVersion: v1
kind: Service
metadata: {name: web, labels: {tier: gold}}
spec: {externalIPs: [10.1.1.1], ports: [{port: 80}]}
`

// routed is a directory on a node of rack 1.
type routed struct {
	*looker
	peers string // last delivered
	calls int
	no    []problem.Problem
}

func newRouted(t *testing.T) *routed {
	r := &routed{looker: newLooker(t)}
	r.d.routing = routing{labels: map[string]string{"rack": "1"}, onPeers: func(all []crd.Peer) []problem.Problem {
		var words []string
		for _, p := range all {
			words = append(words, fmt.Sprintf("%s %s AS%d %s", p.Name, p.Address, p.AS, p.Password))
		}
		r.peers = strings.Join(words, "; ")
		r.calls++
		return r.no
	}}
	return r
}

func offers(s source.Snapshot) string {
	if s.Advertisements == nil {
		return "itself"
	}
	all, why := s.Advertisements.Offers(s.Services[0], netip.MustParseAddr("10.1.1.1"))
	var words []string
	for _, o := range all {
		words = append(words, fmt.Sprintf("%s %s (%s)", o.By, o.Prefix, o.Attributes))
	}
	return strings.Join(words, "; ") + why
}

func TestRouting(t *testing.T) {
	r := newRouted(t)
	r.write("web.yaml", gold)
	first := r.rest()
	wantProblems(t, first)
	if offers(first) != "itself" || r.peers != "" || r.calls != 1 {
		t.Errorf("without routing objects: %s, peers %q delivered %d times", offers(first), r.peers, r.calls)
	}
	r.write("bgp.yaml", routes)
	s := r.rest()
	wantProblems(t, s)
	const tor, edge = "tor-1 10.0.0.109:0 AS65110 sesame", "Advertisement edge 10.1.1.1/32 (communities 65000:1 no-export, MED 10, to tor-1)"
	if offers(s) != edge || r.peers != tor {
		t.Errorf("offers %s, peers %s", offers(s), r.peers)
	}
	calls := r.calls
	r.write("web.yaml", strings.Replace(gold, "port: 80", "port: 81", 1))
	if after := r.rest(); after.Advertisements != s.Advertisements || r.calls != calls {
		t.Errorf("a change of a Service rebuilt the Advertisements or delivered peers: %d calls, then %d", calls, r.calls)
	}
	// A rejected change keeps the previous version.
	r.write("bgp.yaml", strings.NewReplacer("10.0.0.109", "router", "65000:1", "x", "med: 10", "med: -1", "sesame", `""`, "10.1.1.0/24", "10.1.1.1/24").Replace(routes))
	s = r.rest()
	wantProblems(t, s,
		`bgp.yaml:5: BGPPeer tor-1: spec.peerAddress: "router" is not an IP address`,
		"bgp.yaml:20: Secret default/bgp: stringData[password]: is missing or empty",
		"bgp.yaml:25: AddressPool web: spec.addresses[0]: ",
		`bgp.yaml:33: Advertisement edge: spec.communities[0]: "x" is not a community`,
		"bgp.yaml:34: Advertisement edge: spec.med: -1 is not between 0 and 4294967295",
	)
	if offers(s) != edge || r.peers != tor {
		t.Errorf("after a refusal: offers %s, peers %s", offers(s), r.peers)
	}
	// So do an unknown field, and a namespace.
	r.write("bgp.yaml", strings.NewReplacer("ttlSecurity", "ttlSecurty", "{name: edge}", "{name: edge, namespace: x}").Replace(routes))
	wantProblems(t, r.rest(), "bgp.yaml:8: BGPPeer tor-1: spec.ttlSecurty: unknown field; did you mean \"ttlSecurity\"?",
		"bgp.yaml:29: Advertisement edge: metadata.namespace: objects of this kind are in no namespace")
	r.write("bgp.yaml", strings.Replace(routes, "name: bgp", "name: other", 1))
	r.rest()
	if r.peers != tor {
		t.Errorf("without its Secret: peers %s", r.peers)
	}
	must(t, os.Remove(filepath.Join(r.dir, "bgp.yaml")))
	if s = r.rest(); offers(s) != "itself" || r.peers != "" {
		t.Errorf("all gone: %s, peers %q", offers(s), r.peers)
	}
}

// TestPeersThatCannotBe checks that problems of peers have file and line, and that peers
// are delivered again until no problem is left.
func TestPeersThatCannotBe(t *testing.T) {
	r := newRouted(t)
	r.no = []problem.Problem{{Object: "BGPPeer tor-1", Field: "spec.peerAddress", Message: "is another's"}}
	r.write("bgp.yaml", gold+"---\n"+strings.Replace(routes, "name: bgp", "name: other", 1))
	wantProblems(t, r.rest(), "bgp.yaml:6: BGPPeer tor-1: spec.passwordSecretRef: Secret bgp not found in this folder", "bgp.yaml:6: BGPPeer tor-1: spec.peerAddress: is another's")
	if r.peers != "" {
		t.Errorf("got peers %s, want none: the password is not known", r.peers)
	}
	r.no = nil
	r.write("bgp.yaml", gold+"---\n"+routes)
	wantProblems(t, r.rest())
}

func TestSecretInBase64(t *testing.T) {
	for data, want := range map[string]string{"c2VzYW1lCg==": "sesame", "c2VzYW1lDQo=": "sesame", "!": "is not base64", "": "is missing or empty"} {
		p := parseFile("s.yaml", []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: bgp}\ntype: Opaque\ndata: {password: \""+data+"\"}\n"))
		got := fmt.Sprint(p.problems)
		if len(p.objects) == 1 {
			got = p.objects[0].Value.(string)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", data, got, want)
		}
	}
}
