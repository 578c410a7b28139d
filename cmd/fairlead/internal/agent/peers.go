package agent

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source/crd"
)

// setPeers configures the speaker with the peers from flags and from the cluster, and
// returns the problems of the latter.
func (a *agent) setPeers(of []crd.Peer) []problem.Problem {
	defer a.peersKnown.Store(true)
	if a.speaker == nil {
		return noSpeaker(of)
	}
	peers, problems := mergePeers(speakerConfig(a.config).Peers, of)
	if err := a.speaker.SetPeers(peers); err != nil {
		problems = append(problems, problem.Failed("BGP speaker", err.Error()+"; it is tried again"))
	}
	return problems
}

// noSpeaker rejects peers if this node cannot speak BGP.
func noSpeaker(of []crd.Peer) (problems []problem.Problem) {
	for _, p := range of {
		problems = append(problems, problem.Problem{Object: p.Object(), Message: "this node has no router ID, as its interface has no " +
			"IPv4 address: give the agent one by --router-id, unique among the speakers"})
	}
	return problems
}

// PeerProblems returns the problems of the BGPPeers of a node without peers from flags.
func PeerProblems(of []crd.Peer) []problem.Problem {
	_, problems := mergePeers(nil, of)
	return problems
}

// mergePeers returns the peers from flags and those from the cluster with other
// addresses, and the problems of the rest, which is omitted.
func mergePeers(flags []bgp.PeerConfig, of []crd.Peer) (peers []bgp.PeerConfig, problems []problem.Problem) {
	owner := map[string]string{}
	for _, p := range flags {
		owner[p.Address.String()] = "--peer"
	}
	peers = append(peers, flags...)
	for _, p := range of {
		c := bgp.PeerConfig{
			Name: p.Name, Address: p.Address.Addr(), Port: p.Address.Port(), AS: p.AS, Password: p.Password,
			SourceAddress: p.Source, SourceInterface: p.Interface, HoldTime: p.HoldTime, Keepalive: p.Keepalive,
			ConnectRetry: p.ConnectRetry, EBGPMultihop: p.EBGPMultihop, TTLSecurity: p.TTLSecurity,
			BFD: p.BFD, Timing: bfd.Timing{Interval: p.BFDInterval, Multiplier: p.BFDMultiplier},
		}
		refuse := func(field, message string) {
			problems = append(problems, problem.Problem{Object: p.Object(), Field: field, Message: message})
		}
		at, field := c.Address.String(), "spec.peerAddress"
		if !c.Address.IsValid() {
			at, field = "the router on "+c.SourceInterface, "spec.interface"
		}
		if first := owner[at]; first != "" {
			refuse(field, fmt.Sprintf("%s has %s already, and counts; this one is left out", first, at))
			continue
		}
		if err := c.Validate(); err != nil {
			refuse("", err.Error()+"; it is left out")
			continue
		}
		owner[at] = p.Object()
		peers = append(peers, c)
	}
	return peers, problems
}

// taken returns addresses that no Service may have, with their owners.
func (a *agent) taken() map[netip.Addr]string {
	all := map[netip.Addr]string{}
	for _, hop := range []netip.Addr{a.config.NextHop4, a.config.NextHop6} {
		if hop.IsValid() {
			all[hop] = "the node of this balancer (--next-hop)"
		}
	}
	for _, m := range a.config.Layer2.Members {
		all[m] = "another balancer (--l2-members)"
	}
	for _, p := range a.peers() {
		if addr, err := netip.ParseAddr(p.Address); err == nil && !p.Unconfigured {
			all[addr] = strings.TrimSpace("BGP peer " + p.Name)
		}
	}
	return all
}
