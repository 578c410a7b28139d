package healthport

import (
	"encoding/json"
	"net/http"
	"time"
)

// DefaultTimeout is a good value of Healthz.Timeout, and kube-proxy's.
const DefaultTimeout = time.Minute

// Healthz reports whether the service proxy is healthy.
type Healthz struct {
	// Sync returns when everything was last written, and when the pending write was
	// pending; zero for never and for none. Normally a loop.Loop's method.
	Sync func() (last, waits time.Time)
	// Timeout is how long a write may be pending.
	Timeout time.Duration
	// Eligible reports whether load balancers may send packets to the node: not while
	// it is being deleted, or about to be.
	Eligible func() bool
}

// status is kube-proxy's response.
type status struct {
	LastUpdated  time.Time         `json:"lastUpdated"`
	CurrentTime  time.Time         `json:"currentTime"`
	NodeEligible *bool             `json:"nodeEligible,omitempty"`
	Healthy      bool              `json:"healthy"`
	Status       map[string]family `json:"status,omitempty"`
}

type family struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// Healthy reports whether no write has been pending for longer than Timeout.
func (h *Healthz) Healthy() bool { return h.status().Healthy }

func (h *Healthz) status() status {
	last, waits := h.Sync()
	now := time.Now()
	s := status{LastUpdated: last, CurrentTime: now, Healthy: waits.IsZero() || now.Sub(waits) < h.Timeout}
	if !last.IsZero() { // one plane writes both
		f := family{last, s.Healthy}
		s.Status = map[string]family{"IPv4": f, "IPv6": f}
	}
	return s
}

// Handler serves /healthz, for load balancers that check whether this node may get
// traffic, and /livez, which covers only the proxy: 200 or 503.
func (h *Healthz) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		eligible := h.Eligible()
		h.write(w, &eligible)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { h.write(w, nil) })
	return mux
}

func (h *Healthz) write(w http.ResponseWriter, eligible *bool) {
	s := h.status()
	s.NodeEligible = eligible
	good := s.Healthy && (eligible == nil || *eligible)
	if good {
		s.LastUpdated = s.CurrentTime // "nothing pending" is true as of now
	}
	body, err := json.Marshal(s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	reply(w, good, body)
}
