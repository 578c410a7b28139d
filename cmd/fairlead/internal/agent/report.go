package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/source/kube"
)

// reportPace is how often an agent writes what has changed to the status of BGPPeers and
// Advertisements, to its NodeReport and to its BGPSessions: the API server sends each write to
// all watchers, such as all agents.
const reportPace = 10 * time.Second

// report reports to the cluster until ctx ends, and then removes what it has written.
func (a *agent) report(ctx context.Context) {
	fromFlags := map[string]bool{}
	for _, p := range speakerConfig(a.config).Peers {
		fromFlags[p.Address.String()] = true
	}
	for sleep.For(ctx, reportPace) {
		if v := a.loop.View(); v.Loaded && (a.speaker == nil || a.peersKnown.Load()) {
			peers := a.peers()
			a.cluster.Report(ctx, reports(peers, fromFlags, v.Plan, v.Announced))
			a.cluster.ReportSessions(ctx, peers)
			a.cluster.ReportServices(ctx, a.statusSource().Outcomes())
			a.cluster.Renew(ctx)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	a.cluster.Report(ctx, nil)
	a.cluster.ReportSessions(ctx, nil)
	a.cluster.RemoveServices(ctx)
}

func (a *agent) peers() []advertise.Peer {
	if a.speaker == nil {
		return nil
	}
	return a.speaker.Peers()
}

// reports returns the sessions with BGPPeers, which are not those with the addresses from flags,
// and what is advertised of each Advertisement.
func reports(peers []advertise.Peer, fromFlags map[string]bool, p *plan.Plan, announced map[route.Route]time.Time) map[kube.Reported]kube.Report {
	all := map[kube.Reported]kube.Report{}
	for _, p := range peers {
		if p.Unconfigured || fromFlags[p.Address] {
			continue
		}
		r := kube.Report{Ready: p.State == advertise.Established, Message: advertise.Established}
		if !r.Ready { // the state of the attempt changes all the time, and each write goes to all agents
			r.Message = strings.TrimSuffix("not established: "+p.LastError, ": ")
		}
		all[kube.Reported{Kind: "BGPPeer", Name: p.Name}] = r
	}
	total, said := map[string]int{}, map[string]int{}
	for _, r := range p.Routes {
		_, is := announced[r.Route]
		for _, by := range r.By {
			if total[by]++; is {
				said[by]++
			}
		}
	}
	for by, n := range total {
		all[kube.Reported{Kind: "Advertisement", Name: by}] = kube.Report{Ready: said[by] == n, Message: fmt.Sprintf("%d of %d prefixes are advertised", said[by], n)}
	}
	return all
}
