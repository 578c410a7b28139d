package ecmp

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
)

// peers queries the reflectors for their sessions, which are all sessions of the system.
func (s *system) peers(ctx context.Context) (all [][]advertise.Peer, err error) {
	for _, name := range s.Reflectors() {
		ctx, cancel := context.WithTimeout(ctx, cluster.StartLimit)
		st, err := status.Fetch(ctx, socket.Default(name))
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, st.Peers)
	}
	return all, nil
}

// flaps counts the sessions that have ended.
func (s *system) flaps(ctx context.Context) (n uint64, err error) {
	all, err := s.peers(ctx)
	for _, peers := range all {
		for _, p := range peers {
			n += p.Flaps
		}
	}
	return n, err
}

// sessionsUp waits until every load balancer and the router have a session with every
// reflector, monitored by BFD.
func (s *system) sessionsUp(ctx context.Context) error {
	want := len(s.Balancers(mainService)) + 1
	var why error
	_, ok := cluster.Await(ctx, 20*time.Millisecond, cluster.StartLimit, func() bool {
		all, err := s.peers(ctx)
		if why = err; err != nil {
			return false
		}
		for i, peers := range all {
			up := 0
			for _, p := range peers {
				if p.State == "established" && p.BFD == "up" {
					up++
				}
			}
			if up < want {
				why = fmt.Errorf("%s has %d sessions up, want %d", s.Reflectors()[i], up, want)
				return false
			}
		}
		return true
	})
	if !ok {
		return why
	}
	return ctx.Err()
}
