package server

import (
	"net/http"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/access"
)

func (s *Server) postAttachment(r *http.Request) (answer, error) {
	began := s.now()
	var request vdn.AttachmentRequest
	if err := body(r, &request); err != nil {
		return answer{}, err
	}
	about(r, "attachment "+request.ID())
	if err := may(r, access.Action{Verb: access.Change, Kind: access.Attachment, Network: request.Network, Node: request.Node}); err != nil {
		return answer{}, err
	}
	lease, created, err := s.store.Attach(r.Context(), request, began.Unix())
	if err != nil {
		return answer{}, err
	}
	s.metrics.attached.Observe(s.now().Sub(began).Seconds())
	return answer{status: createdOr(created), body: lease}, nil
}

func (s *Server) getAttachments(r *http.Request) (answer, error) {
	if err := only(r, "network", "node"); err != nil {
		return answer{}, err
	}
	network, node := r.URL.Query().Get("network"), r.URL.Query().Get("node")
	if err := may(r, access.Action{Verb: access.Read, Kind: access.Attachment, Network: network, Node: node}); err != nil {
		return answer{}, err
	}
	mine := filter(s.store.Attachments(network, node), func(a vdn.Attachment) bool { return who(r).Sees(a.Network) })
	return answer{status: http.StatusOK, body: mine}, nil
}

func (s *Server) getAttachment(r *http.Request) (answer, error) {
	a, err := s.store.Attachment(r.PathValue("id"))
	if err == nil {
		err = may(r, access.Action{Verb: access.Read, Kind: access.Attachment, Network: a.Network, Node: a.Node})
	}
	return answer{status: http.StatusOK, body: a}, err
}

func (s *Server) deleteAttachment(r *http.Request) (answer, error) {
	if who(r).Role == access.Reader { // even if it does not exist
		if err := mayTouch(r)(vdn.Attachment{}); err != nil {
			return answer{}, err
		}
	}
	return answer{status: http.StatusNoContent}, s.store.Detach(r.Context(), r.PathValue("id"), mayTouch(r))
}

func (s *Server) putUp(r *http.Request) (answer, error) {
	var up vdn.UpReport
	if err := body(r, &up); err != nil {
		return answer{}, err
	}
	a, err := s.store.Up(r.Context(), r.PathValue("id"), up, mayTouch(r))
	return answer{status: http.StatusOK, body: a}, err
}

// Valid lists the attachments of a node that are still used in a network.
type Valid struct {
	Network string   `json:"network"`
	Valid   []string `json:"valid"`
}

// Released lists the attachments that were released.
type Released struct {
	Released []string `json:"released"`
}

func (s *Server) postGC(r *http.Request) (answer, error) {
	var v Valid
	if err := body(r, &v); err != nil {
		return answer{}, err
	}
	if v.Network == "" {
		return answer{}, invalid("node %s, network: is required: use the network whose attachments are collected", r.PathValue("node"))
	}
	if v.Valid == nil {
		return answer{}, invalid("node %s, valid: is required: list the attachments in use, [] if no attachment is", r.PathValue("node"))
	}
	released, err := s.store.Collect(r.Context(), r.PathValue("node"), v.Network, v.Valid)
	if released == nil {
		released = []string{}
	}
	return answer{status: http.StatusOK, body: Released{released}}, err
}
