package node

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// Status is what the daemon says of itself: GET /status at its socket. Its JSON names
// are an interface.
type Status struct {
	vdn.Node
	// Reachable says that a controller has answered the last question for a plan; Since
	// is when that began.
	Reachable bool      `json:"reachable"`
	Since     time.Time `json:"since,omitzero"`
	// Unreachable is why none answers, in words.
	Unreachable string `json:"unreachable,omitempty"`
	// Controllers are all of them, as they were when they were asked last.
	Controllers []client.ControllerState `json:"controllers"`
	// Plan is the revision of the newest plan; 0 where there is none yet. Cached says
	// that it is from the node's disk, and no controller has confirmed it since.
	Plan   uint64 `json:"plan"`
	Cached bool   `json:"cached,omitempty"`
	// Networks and Attachments are how many it has.
	Networks    int `json:"networks"`
	Attachments int `json:"attachments"`
	// Applied is the revision of the plan that holds, Error why the newest does not.
	Applied  uint64   `json:"applied"`
	Error    string   `json:"error,omitempty"`
	Degraded []string `json:"degraded,omitempty"`
	// Adopted are attachments that the node has continued without a controller, which
	// knows of none of them yet.
	Adopted []string `json:"adopted,omitempty"`
}

// Status gives it.
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

// contact is how the daemon gets on with controllers.
type contact struct {
	reachable bool
	since     time.Time
	err       error
	cached    bool // the plan is that of the disk
}

// heard notes what came of a question for a plan, and says whether that is other than
// before.
func (d *Daemon) heard(err error) (changed bool) {
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
	_ = json.NewEncoder(w).Encode(d.Status()) // who asked may be gone
}
