package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/access"
)

// View returns the complete view of the domain.
func (s *Server) View() vdn.View {
	state, attachments := s.store.State("")
	v := vdn.View{
		Domain: state.Domain, Revision: state.Revision, Networks: state.Networks,
		Attachments: attachments, Nodes: []vdn.NodeView{}, Peers: state.Peers,
		Notes: vdn.Overbooked(state.Networks, state.Nodes),
	}
	if err := s.store.Err(); err != nil {
		v.Notes = append(v.Notes, fmt.Sprintf("controller %s: %v: changes are rejected, and the view may be outdated", s.name, err))
	}
	now := s.now()
	for _, n := range state.Nodes {
		v.Nodes = append(v.Nodes, s.reports.view(n, now))
	}
	return v
}

func (s *Server) getView(r *http.Request) (answer, error) {
	try := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = s.store.Sync(ctx) // on failure the view has a note that it may be stale
		return nil
	}
	fresh, err := s.news(r, try, func() (uint64, uint64, error) {
		now := s.store.Revision()
		return now, now, nil
	})
	if err != nil || !fresh {
		return answer{status: http.StatusNotModified}, err
	}
	return answer{status: http.StatusOK, body: seenBy(who(r), s.View())}, nil
}

// seenBy returns the part of a view that an identity may see: a tenant sees only its own
// networks and their counters at nodes.
func seenBy(i access.Identity, v vdn.View) vdn.View {
	if i.Role != access.Tenant {
		return v
	}
	v.Peers, v.Notes = nil, nil
	v.Networks = filter(v.Networks, func(n vdn.Network) bool { return i.Sees(n.Name) })
	v.Attachments = filter(v.Attachments, func(a vdn.Attachment) bool { return i.Sees(a.Network) })
	nodes := []vdn.NodeView{}
	for _, n := range v.Nodes {
		nodes = append(nodes, vdn.NodeView{
			NodeReport: vdn.NodeReport{
				Node:     vdn.Node{Name: n.Name, Means: n.Means, Uplinks: []vdn.Uplink{}},
				Applied:  n.Applied,
				Counters: filter(n.Counters, func(c vdn.Counter) bool { return i.Sees(c.Network) }),
			},
			ReportAge: n.ReportAge, Alive: n.Alive, Rates: filter(n.Rates, func(c vdn.CounterRate) bool { return i.Sees(c.Network) }),
		})
	}
	v.Nodes = nodes
	return v
}

// filter returns the matching elements of a list; never nil.
func filter[T any](all []T, is func(T) bool) []T {
	some := []T{}
	for _, one := range all {
		if is(one) {
			some = append(some, one)
		}
	}
	return some
}

func (s *Server) getPeers(r *http.Request) (answer, error) {
	if err := only(r); err != nil {
		return answer{}, err
	}
	all := []vdn.Peer{}
	for _, p := range s.store.Peers() {
		all = append(all, p.Peer)
	}
	return answer{status: http.StatusOK, body: all}, nil
}

func (s *Server) putPeer(r *http.Request) (answer, error) {
	var p vdn.Peer
	if err := body(r, &p); err != nil {
		return answer{}, err
	}
	if err := named("peer", &p.Domain, r.PathValue("domain")); err != nil {
		return answer{}, err
	}
	created, err := s.store.PutPeer(r.Context(), p)
	return answer{status: createdOr(created), body: p}, err
}

func (s *Server) deletePeer(r *http.Request) (answer, error) {
	domain := r.PathValue("domain")
	return answer{status: http.StatusNoContent}, s.store.DeletePeer(r.Context(), domain)
}

// Health is the response to a health check.
type Health struct {
	Status string `json:"status"`
	// Controller is the name of this controller.
	Controller string `json:"controller"`
	// Leads is true if this controller is the leader, which queries other domains and
	// follows a cluster.
	Leads bool `json:"leads"`
}

func (s *Server) getHealth(*http.Request) (answer, error) {
	return answer{status: http.StatusOK, body: Health{"ok", s.name, s.leads.Load()}}, s.store.Err()
}
