package schedule

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/ring"
)

// Affinity records the last backend of each client.
type Affinity struct {
	clients map[netip.Addr]lastServer
}

type lastServer struct {
	id ring.ID
	at time.Time
}

// Server returns the last backend of a client, if it was used within timeout.
func (a *Affinity) Server(client netip.Addr, timeout time.Duration, now time.Time) (ring.ID, bool) {
	last, ok := a.clients[client]
	if ok && now.Sub(last.at) > timeout {
		delete(a.clients, client)
		return 0, false
	}
	return last.id, ok
}

// Saw records that a new flow of a client went to a backend.
func (a *Affinity) Saw(client netip.Addr, id ring.ID, now time.Time) {
	if a.clients == nil {
		a.clients = map[netip.Addr]lastServer{}
	}
	a.clients[client] = lastServer{id, now}
}

// Keep forgets the clients of all other backends.
func (a *Affinity) Keep(stays func(ring.ID) bool) {
	for client, last := range a.clients {
		if !stays(last.id) {
			delete(a.clients, client)
		}
	}
}
