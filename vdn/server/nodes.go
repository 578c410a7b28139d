package server

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/vdn"
)

// aliveFor is how long a node counts as alive after a report.
const aliveFor = 10 * time.Second

// reports holds the last report of each node.
type reports struct {
	mu    sync.Mutex
	last  map[string]report
	began time.Time // start of this process
}

type report struct {
	vdn.NodeReport
	at    time.Time
	rates []vdn.CounterRate
}

func (r *reports) set(n vdn.NodeReport, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]report{}
	}
	before := r.last[n.Name]
	r.last[n.Name] = report{n, now, rates(before.Counters, n.Counters, now.Sub(before.at).Seconds())}
}

func (r *reports) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, name)
}

// view returns a node's view. If the node has reported only to a previous process, its last
// report counts as made when this process began.
func (r *reports) view(n vdn.Node, now time.Time) vdn.NodeView {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, there := r.last[n.Name]
	if !there {
		return vdn.NodeView{NodeReport: vdn.NodeReport{Node: n}, ReportAge: max(now.Sub(r.began).Seconds(), 0)}
	}
	age := max(now.Sub(last.at), 0)
	v := vdn.NodeView{NodeReport: last.NodeReport, ReportAge: age.Seconds(), Alive: age < aliveFor}
	if v.Alive {
		v.Rates = last.rates
	}
	return v
}

// rates computes rates from two reports. Counters that are new or were reset have none.
func rates(before, now []vdn.Counter, seconds float64) (all []vdn.CounterRate) {
	type key struct{ network, attachment, device string }
	was := map[key]vdn.Counter{}
	for _, c := range before {
		was[key{c.Network, c.Attachment, c.Device}] = c
	}
	for _, c := range now {
		b, there := was[key{c.Network, c.Attachment, c.Device}]
		if !there || seconds <= 0 || c.SentBytes < b.SentBytes || c.ReceivedBytes < b.ReceivedBytes || drops(c) < drops(b) {
			continue
		}
		bits := func(now, before uint64) vdn.Rate { return vdn.Rate(float64(now-before) * 8 / seconds) }
		all = append(all, vdn.CounterRate{
			Network: c.Network, Attachment: c.Attachment, Device: c.Device,
			Sent: bits(c.SentBytes, b.SentBytes), Received: bits(c.ReceivedBytes, b.ReceivedBytes),
			Drops: float64(drops(c)-drops(b)) / seconds,
		})
	}
	return all
}

func drops(c vdn.Counter) (sum uint64) {
	for _, n := range c.Drops {
		sum += n
	}
	return sum
}

func (s *Server) putNode(r *http.Request) (answer, error) {
	var n vdn.NodeReport
	if err := body(r, &n); err != nil {
		return answer{}, err
	}
	if err := named("node", &n.Name, r.PathValue("node")); err != nil {
		return answer{}, err
	}
	if err := n.Validate(); err != nil {
		return answer{}, err
	}
	if n.Uplinks == nil {
		n.Uplinks = []vdn.Uplink{}
	}
	if err := s.store.PutNode(r.Context(), n.Node); err != nil {
		return answer{}, err
	}
	s.reports.set(n, s.now())
	return answer{status: http.StatusNoContent}, nil
}

func (s *Server) deleteNode(r *http.Request) (answer, error) {
	name := r.PathValue("node")
	if err := s.store.DeleteNode(r.Context(), name); err != nil {
		return answer{}, err
	}
	s.reports.forget(name)
	s.recent.forget(planOf(name))
	return answer{status: http.StatusNoContent}, nil
}

func planOf(node string) string { return "plan " + node }

func (s *Server) getPlan(r *http.Request) (answer, error) {
	var plan vdn.Plan
	fresh, err := s.news(r, s.store.Sync, func() (uint64, uint64, error) { return s.plan(r.PathValue("node"), &plan) })
	if err != nil {
		return answer{}, err
	}
	if !fresh {
		return answer{status: http.StatusNotModified}, nil
	}
	if plan.Slices == nil { // requested without waiting
		_, _, err = s.plan(r.PathValue("node"), &plan)
	}
	return answer{status: http.StatusOK, body: plan}, err
}

// plan computes a node's plan. Its revision is that of the first identical plan.
func (s *Server) plan(name string, into *vdn.Plan) (revision, upon uint64, err error) {
	state, local := s.store.State(name)
	i := slices.IndexFunc(state.Nodes, func(n vdn.Node) bool { return n.Name == name })
	if i < 0 {
		return 0, 0, vdn.Missing("node "+name, "has not reported yet: PUT /v1/nodes/"+name+" first")
	}
	*into = vdn.PlanFor(state, state.Nodes[i], local)
	into.Revision = 0
	into.Revision = s.recent.revision(planOf(name), state.Revision, *into)
	return into.Revision, state.Revision, nil
}
