package plan

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

func TestStages(t *testing.T) {
	const s = time.Second
	in := func(change func(*DrainInput)) DrainInput {
		i := DrainInput{Why: []string{"cordoned"}, Notice: 2 * s, Linger: s, Timeout: 20 * s, NoticeLimit: 3 * s, Announces: true, Remembers: true, Notified: true}
		change(&i)
		return i
	}
	for _, c := range []struct {
		name     string
		from, to Stage
		in       DrainInput
	}{
		{"no reason", Serving, Serving, in(func(i *DrainInput) { i.Why = nil })},
		{"begins", Serving, Notifying, in(func(i *DrainInput) {})},
		{"begins without flows", Serving, GracefulShutdown, in(func(i *DrainInput) { i.Remembers, i.Notified = false, false })},
		{"an agent that starts so", "", Withdrawn, in(func(i *DrainInput) { i.Announces, i.Remembers = false, false })},
		{"remembers, though nothing is announced", Serving, Notifying, in(func(i *DrainInput) { i.Announces = false })},
		{"asks for its time", GracefulShutdown, GracefulShutdown, in(func(i *DrainInput) { i.In = 2*s - 1 })},
		{"and no longer", GracefulShutdown, Withdrawn, in(func(i *DrainInput) { i.In = 2 * s })},
		{"waits for the others to know", Notifying, Notifying, in(func(i *DrainInput) { i.In, i.Notified = 3*s-1, false })},
		{"and no longer", Notifying, GracefulShutdown, in(func(i *DrainInput) {})},
		{"not for ever", Notifying, GracefulShutdown, in(func(i *DrainInput) { i.In, i.Notified = 3*s, false })},
		{"nobody needs to know", Notifying, GracefulShutdown, in(func(i *DrainInput) { i.Notified, i.Remembers = false, false })},
		{"hurry before the others know", Notifying, GracefulShutdown, in(func(i *DrainInput) { i.Hurry, i.Notified = true, false })},
		{"undone before the others know", Notifying, Serving, in(func(i *DrainInput) { i.Why = nil })},
		{"hurry", GracefulShutdown, Withdrawn, in(func(i *DrainInput) { i.Hurry = true })},
		{"packets are on their way", Withdrawn, Withdrawn, in(func(i *DrainInput) { i.In, i.Announces, i.Remembers = s-1, false, false })},
		{"even in a hurry", Withdrawn, Withdrawn, in(func(i *DrainInput) { i.In, i.Hurry = s-1, true })},
		{"no flow is left", Withdrawn, Drained, in(func(i *DrainInput) { i.In, i.Announces, i.Remembers = s, false, false })},
		{"flows are left", Withdrawn, Withdrawn, in(func(i *DrainInput) { i.In, i.Announces = 20*s, false })},
		{"for too long", Withdrawn, Drained, in(func(i *DrainInput) { i.In, i.Announces = 21*s, false })},
		{"routes that do not go", Withdrawn, Withdrawn, in(func(i *DrainInput) { i.In, i.Remembers = 20*s, false })},
		{"for too long, either", Withdrawn, Drained, in(func(i *DrainInput) { i.In, i.Remembers = 21*s, false })},
		{"in a hurry", Withdrawn, Drained, in(func(i *DrainInput) { i.In, i.Hurry = s, true })},
		{"stays drained", Drained, Drained, in(func(i *DrainInput) {})},
		{"undone while it asks", GracefulShutdown, Serving, in(func(i *DrainInput) { i.Why = nil })},
		{"undone later", Withdrawn, Serving, in(func(i *DrainInput) { i.Why = nil })},
		{"undone when drained", Drained, Serving, in(func(i *DrainInput) { i.Why = nil })},
		{"the last one", Serving, Deferred, in(func(i *DrainInput) { i.Last = true })},
		{"the last one, found out later", Drained, Deferred, in(func(i *DrainInput) { i.Last = true })},
		{"no longer the last", Deferred, Notifying, in(func(i *DrainInput) {})},
	} {
		if got := c.from.Next(c.in); got != c.to {
			t.Errorf("%s: from %q to %q, want %q", c.name, c.from, got, c.to)
		}
	}
}

// drainingPlan returns the plan of a load balancer in a stage, with one Service that is
// advertised by two differing offers.
func drainingPlan(stage Stage, avoid Avoid) *Plan {
	n := node
	n.Drain = Drain{Stage: stage, Why: []string{"cordoned", "by command"}, Avoid: avoid}
	return Build(Input{
		Services: []*service.Service{web("web", "10.1.1.1", 2)}, Node: n, Health: func(health.Target) health.State { return health.Up },
		Announce: func(*service.Service, netip.Addr) ([]route.Offer, string) {
			prefix := netip.MustParsePrefix("10.1.1.1/32")
			return []route.Offer{
				{By: "Advertisement a", Prefix: prefix, Attributes: route.Attributes{Communities: "65000:1", MED: 5, LocalPreference: 200}},
				{By: "Advertisement b", Prefix: prefix, Attributes: route.Attributes{MED: 6, LocalPreference: 200}},
			}, ""
		},
	})
}

func TestRoutesOfABalancerThatDrains(t *testing.T) {
	const (
		plain    = "10.1.1.1/32 via 10.0.0.105 (communities 65000:1, local preference 200, MED 5)\nnot 10.1.1.1/32: announced as"
		marked   = "10.1.1.1/32 via 10.0.0.105 (communities 65000:1 graceful-shutdown, local preference 1, MED 5)\nnot 10.1.1.1/32: announced as"
		withdraw = "not 10.1.1.1/32: this load balancer is draining: cordoned; by command"
	)
	shutdown := route.CommunitiesOf(route.GracefulShutdown)
	for _, c := range []struct {
		stage Stage
		avoid Avoid
		want  string
	}{
		{"", Avoid{Communities: shutdown}, plain}, {Serving, Avoid{Communities: shutdown}, plain}, {Deferred, Avoid{Communities: shutdown}, plain},
		{GracefulShutdown, Avoid{}, plain}, {GracefulShutdown, Avoid{Communities: shutdown}, marked},
		{GracefulShutdown, Avoid{Communities: shutdown, MED: 3}, marked},
		{GracefulShutdown, Avoid{MED: 1000}, "10.1.1.1/32 via 10.0.0.105 (communities 65000:1, local preference 1, MED 1000)\nnot 10.1.1.1/32: announced as"},
		{Withdrawn, Avoid{Communities: shutdown}, withdraw}, {Drained, Avoid{Communities: shutdown}, withdraw},
	} {
		p := drainingPlan(c.stage, c.avoid)
		if got := p.routeWords(); !strings.HasPrefix(got, c.want) || (c.want == withdraw) != (got == c.want) {
			t.Errorf("%s, %+v:\n got %s\nwant %s", c.stage, c.avoid, got, c.want)
		}
		if p.Frontends[0].Want == nil {
			t.Errorf("%s: the frontend is not held: what still comes would be lost", c.stage)
		}
	}
}
