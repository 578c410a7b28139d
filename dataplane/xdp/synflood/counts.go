package synflood

import (
	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Counts reads the events at the frontend with a number.
func Counts(m *ebpf.Map, id uint32) (c dataplane.SYNCounts, err error) {
	err = bpf.EachCPU(m, id, func(n bpf.BalancerSynCounts) {
		c.CookiesSent += n.N[bpf.BalancerSynEventSYN_COOKIE_SENT]
		c.CookiesAccepted += n.N[bpf.BalancerSynEventSYN_COOKIE_ACCEPTED]
		c.CookiesRejected += n.N[bpf.BalancerSynEventSYN_COOKIE_REJECTED]
		c.ChallengesSent += n.N[bpf.BalancerSynEventSYN_CHALLENGE_SENT]
		c.ChallengesAnswered += n.N[bpf.BalancerSynEventSYN_CHALLENGE_ANSWERED]
		c.Admitted += n.N[bpf.BalancerSynEventSYN_ADMITTED]
	})
	return c, err
}
