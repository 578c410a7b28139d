package l2

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/advertise/l2/elect"
	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/internal/udpttl"
	"github.com/fairlead/fairlead/internal/wake"
)

// run is the timer loop.
func (a *Announcer) run() {
	defer a.wg.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-a.done:
			return
		case <-a.wake:
		case <-timer.C:
		}
		timer.Reset(a.tick())
	}
}

// tick does what is due, and returns how long to wait.
func (a *Announcer) tick() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return time.Hour
	}
	now := time.Now()
	a.look(now)
	udpttl.Pending(a.conn, maxHello, func(d udpttl.Datagram) { a.hello(now, d) })
	a.core.Tick(now)
	a.armed = a.looked.Add(lookEvery)
	if next := a.core.Next(); !next.IsZero() && next.Before(a.armed) {
		a.armed = next
	}
	a.perform()
	return max(0, a.armed.Sub(now))
}

// look checks the state of the interfaces.
func (a *Announcer) look(now time.Time) {
	if now.Sub(a.looked) < lookEvery {
		return
	}
	a.looked = now
	changed, running := false, false
	var macs []wire.MAC
	for _, l := range a.links {
		if l.look(a.received) {
			changed = true
			a.Log.Info("layer 2: interface", "interface", l.name, "mac", l.mac, "running", l.running)
		}
		if l.index != 0 {
			macs = append(macs, l.mac)
		}
		running = running || l.running
	}
	if changed {
		a.core.SetLink(now, running, macs)
		a.offer(now)
	}
}

// perform executes the actions of the core, and arms the timer.
func (a *Announcer) perform() {
	out := a.core.Take()
	for _, h := range out.Hellos {
		// A member that cannot be reached will soon be silent.
		_, _ = a.conn.WriteToUDPAddrPort(h.Marshal(a.key, a.Self, h.To), netip.AddrPortFrom(h.To, Port))
	}
	for _, l := range a.links {
		for _, vip := range out.Probe {
			l.send(wire.Probe(vip, l.mac))
		}
		for _, vip := range out.Announce {
			for _, frame := range wire.Announce(vip, l.mac) {
				l.send(frame)
			}
		}
	}
	for _, e := range out.Events {
		a.report(e)
	}
	if next := a.core.Next(); !next.IsZero() && next.Before(a.armed) {
		wake.Up(a.wake)
	}
}

// report logs and records an event.
func (a *Announcer) report(e elect.Event) {
	about, _ := event.Describe(e.Type)
	level := slog.LevelInfo
	if about.Severity == event.Warning {
		level = slog.LevelWarn
	}
	a.Log.Log(context.Background(), level, "layer 2: "+e.Text, "event", e.Type, "address", e.Address)
	o := event.Object{Kind: about.Kind, Name: e.Address.String()}
	if about.Kind == "Route" {
		o.Name = netip.PrefixFrom(e.Address, e.Address.BitLen()).String()
	}
	a.Events.Record(event.Event{Type: e.Type, Object: o, Cause: e.Text})
}

// received processes a message received on a segment.
func (a *Announcer) received(l *link, m wire.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	now := time.Now()
	if m.Sender.IsValid() {
		a.core.Used(now, m.Sender, m.From)
	}
	if m.Asks && a.core.Owns(m.Target) {
		l.send(wire.Answer(m, l.mac))
	}
	if m.Probe() {
		a.core.Wanted(now, m.Target, m.From)
	}
	a.perform()
}

// listen processes hellos until c is closed.
func (a *Announcer) listen(c *net.UDPConn) {
	defer a.wg.Done()
	for {
		d, err := udpttl.Receive(c, maxHello)
		if err != nil {
			return
		}
		a.mu.Lock()
		if !a.closed {
			a.hello(time.Now(), d)
			a.perform()
		}
		a.mu.Unlock()
	}
}

// hello processes a hello, or records why it is rejected.
func (a *Announcer) hello(now time.Time, d udpttl.Datagram) {
	h, err := wire.ParseHello(d.Data, a.key, d.From, a.Self)
	if err == nil && len(a.key) == 0 && d.TTL != udpttl.MaxTTL {
		err = fmt.Errorf("its hello came through a router (TTL %d): where members are not on one segment, give them a password", d.TTL)
	}
	if err != nil {
		a.core.Refused(d.From, err)
		return
	}
	if err := a.core.Receive(now, d.From, h); err != nil {
		a.Log.Debug("layer 2: hello rejected", "error", err)
	}
}
