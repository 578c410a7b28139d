package world

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/paper"
)

// ownAddrs reserves some of the client's addresses for one traffic. Connections from the
// same address and port through two VIPs may reach the same port of one backend, which
// takes them for the same one.
func (w *World) ownAddrs(vip netip.AddrPort) []netip.Addr {
	const each = 4
	addrs := w.ClientAddrs
	if vip.Addr().Is6() {
		addrs = w.ClientAddrs6
	}
	w.taken = (w.taken + each) % (len(addrs) - each + 1)
	return addrs[w.taken : w.taken+each]
}

// Traffic is HTTP load on one VIP.
type Traffic struct {
	*load.Client
	name string
}

// Load starts traffic, and waits until requests succeed.
func (w *World) Load(t *testing.T, name string, vip netip.AddrPort, keepAlive int, oneShotRate float64) Traffic {
	t.Helper()
	w.Answers(t, vip)
	c, err := load.Start(t.Context(), load.Config{
		Dial: w.Lab.Host(paper.Client).Dial, Target: vip, Locals: w.ownAddrs(vip), Timeout: 20 * time.Second,
		KeepAlive: keepAlive, KeepAliveRate: float64(2 * keepAlive), OneShotRate: oneShotRate,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	tr := Traffic{c, name}
	tr.AwaitSettled(t)
	return tr
}

// Name is the name of the traffic.
func (tr Traffic) Name() string { return tr.name }

// AwaitSettled waits for pending requests.
func (tr Traffic) AwaitSettled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Within)
	defer cancel()
	if err := tr.Settle(ctx); err != nil {
		t.Errorf("%s: requests do not end: %v", tr.name, err)
	}
}

// LostSince returns what was lost since a mark, after all pending requests have ended.
func (tr Traffic) LostSince(t *testing.T, m load.Mark) load.Counts {
	t.Helper()
	tr.AwaitSettled(t)
	return tr.Since(m)
}

// unhurt fails the test if a completed change had any effect on the traffic.
func (tr Traffic) unhurt(t *testing.T, m load.Mark, what string) {
	t.Helper()
	c := tr.Since(m)
	if c.Failed+c.BrokenConnections+c.Skipped > 0 || c.Requests == 0 {
		t.Errorf("%s, %s: %d requests, %d failed, %d connections broke, %d were not opened: %v",
			what, tr.name, c.Requests, c.Failed, c.BrokenConnections, c.Skipped, c.Reasons)
	}
}

// During calls do while all traffic flows, which must not be affected.
func During(t *testing.T, all []Traffic, what string, do func()) {
	t.Helper()
	marks := make([]load.Mark, len(all))
	for i, tr := range all {
		marks[i] = tr.Mark()
	}
	do()
	var settling sync.WaitGroup
	for _, tr := range all {
		settling.Go(func() { tr.AwaitSettled(t) })
	}
	settling.Wait()
	for i, tr := range all {
		tr.unhurt(t, marks[i], what)
	}
}
