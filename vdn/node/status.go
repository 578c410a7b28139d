package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// Status is the daemon's own state: GET /status on its socket. Its JSON names are an
// interface.
type Status struct {
	vdn.Node
	// Reachable is true if a controller answered the last request for a plan; Since is when
	// the current state began.
	Reachable bool      `json:"reachable"`
	Since     time.Time `json:"since,omitzero"`
	// Unreachable is why no controller responds.
	Unreachable string `json:"unreachable,omitempty"`
	// Controllers is the state of each controller at its last request.
	Controllers []client.ControllerState `json:"controllers"`
	// Plan is the revision of the newest plan; 0 before the first. Cached means that it
	// is from the node's disk and no controller has confirmed it since.
	Plan   uint64 `json:"plan"`
	Cached bool   `json:"cached,omitempty"`
	// Networks and Attachments are the numbers in the plan.
	Networks    int `json:"networks"`
	Attachments int `json:"attachments"`
	// Applied is the revision of the plan in force, Error why the newest is not fully
	// applied.
	Applied  uint64   `json:"applied"`
	Error    string   `json:"error,omitempty"`
	Degraded []string `json:"degraded,omitempty"`
	// Adopted lists attachments that the node continued without a controller and no
	// controller knows yet.
	Adopted []string `json:"adopted,omitempty"`
}

// Stuck returns why the daemon must be restarted, or nil.
func (d *Daemon) Stuck() error { return d.rounds.Stuck() }

// Ready returns why the node does not enforce anything yet, or nil.
func (d *Daemon) Ready() error {
	if s := d.Status(); s.Plan == 0 {
		return errors.New(cmp.Or(s.Unreachable, "the controller has not sent a plan yet"))
	}
	return nil
}

// Status returns the daemon's current state.
func (d *Daemon) Status() Status {
	s := Status{Node: d.cfg.Node, Degraded: d.cfg.Enforcer.Degraded(), Controllers: []client.ControllerState{}}
	if states, ok := d.cfg.Controller.(interface {
		Controllers() []client.ControllerState
	}); ok {
		s.Controllers = states.Controllers()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Reachable, s.Since, s.Applied, s.Cached = d.contact.reachable, d.contact.since, d.applied.Revision, d.contact.cached
	if d.contact.err != nil {
		s.Unreachable = d.contact.err.Error()
	}
	if d.err != nil {
		s.Error = d.err.Error()
	}
	s.Adopted = slices.Sorted(maps.Keys(d.adopted))
	if d.plan != nil {
		s.Plan, s.Networks, s.Attachments = d.plan.Revision, len(d.plan.Slices), len(d.plan.Local)
	}
	return s
}

// contact is the state of the connection to the controllers.
type contact struct {
	reachable bool
	since     time.Time
	err       error
	cached    bool // the plan is from disk
}

// noteContact records the outcome of a request for a plan, and reports whether reachability
// changed.
func (d *Daemon) noteContact(err error) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed = d.contact.since.IsZero() || d.contact.reachable != (err == nil)
	if changed {
		d.contact.since = time.Now()
	}
	d.contact.reachable, d.contact.err = err == nil, err
	if err == nil {
		d.contact.cached = false
	}
	return changed
}

func (d *Daemon) answerStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(d.Status()) // the client may be gone
}
