package bgp

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/announce/bfd"
)

// silenceSeen is how long BFD takes to see silence in TestDoubt: so long that a busy
// machine can cut a link and withdraw a route before.
const silenceSeen = bfd.DefaultMultiplier * time.Second

// TestDoubt withdraws from peers that live, from one that has died without a word,
// and from one whose silence has just been noticed; with BFD and without.
func TestDoubt(t *testing.T) {
	l := paper(t)
	both := []string{"10.0.0.108", "10.0.0.109"}
	enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
	enact(t, l.Host("second"), reflectorPart("10.0.0.108"))
	slow := speakerPart(5, both...)
	for i := range slow.Speaker.Peers {
		slow.Speaker.Peers[i].Timing.Interval = silenceSeen / bfd.DefaultMultiplier
	}
	watched := enact(t, l.Host("pod-105"), slow)
	bare := speakerPart(6, both...)
	for i := range bare.Speaker.Peers {
		bare.Speaker.Peers[i].BFD = false
	}
	unwatched := enact(t, l.Host("pod-106"), bare)
	watched.untilUp()
	eventually(t, "sessions without BFD", func() bool {
		ps := unwatched.Ask().Peers
		return len(ps) == 2 && ps[0].State == stateEstablished && ps[1].State == stateEstablished
	})
	withdraw := func(p *player) time.Duration { return p.Tell(order{Set: []announce.Route{}}).Doubt }
	none := func(what string, p *player) {
		t.Helper()
		eventually(t, what, func() bool { return p.Ask().Doubt <= 0 })
	}
	withdraw(watched)
	none("both have heard of it", watched)
	withdraw(unwatched)
	none("both have heard of it, who are not watched", unwatched)
	watched.Tell(order{Set: serviceVia(5)})
	unwatched.Tell(order{Set: serviceVia(6)})
	none("both have heard of the new routes", watched)

	if err := l.Cut("second", "eth0"); err != nil {
		t.Fatal(err)
	}
	if d := withdraw(watched); d != silenceSeen {
		t.Errorf("with a silent peer there is doubt for %v, want what BFD takes", d)
	}
	if d := withdraw(unwatched); d != DefaultHoldTime {
		t.Errorf("with a silent peer without BFD there is doubt for %v, want the hold time", d)
	}
	eventually(t, "its silence is noticed", func() bool { return watched.Ask().Peers[0].State != stateEstablished })
	if d := watched.Ask().Doubt; d < bfd.DefaultInterval {
		t.Errorf("when its silence was noticed the doubt was for %v, want for a packet's time more", d)
	}
	eventually(t, "who was silent before", func() bool {
		withdraw(watched)
		time.Sleep(bfd.DefaultInterval / 2)
		return watched.Ask().Doubt <= 0
	})
}
