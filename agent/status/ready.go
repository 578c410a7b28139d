package status

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/internal/limit"
)

const readyPath = "/v1/ready"

// PeerGrace is how long after its start an agent with at least one BGP session is not
// ready because of the others.
const PeerGrace = 30 * time.Second

// Readiness says whether a process does all of its work, or what it waits for. An agent
// that was ready may lose its sessions; once it has read and written everything, it stays
// ready.
type Readiness struct {
	Ready bool     `json:"ready"`
	Waits []string `json:"waits"`
}

// Sheet returns it for display, one reason per line.
func (r Readiness) Sheet() Sheet {
	if r.Ready {
		return Sheet{Value: r, Lines: []string{"ready"}}
	}
	return Sheet{Value: r, Lines: r.Waits}
}

// Err returns nil if Ready.
func (r Readiness) Err() error {
	if r.Ready {
		return nil
	}
	return fmt.Errorf("not ready: %s", strings.Join(r.Waits, "; "))
}

// Ready reports whether an agent is ready at a given time: its input is read, the first
// complete pass is in the kernel and, if BGP peers are configured, at least one session
// is established, and all of them within PeerGrace.
func (a Agent) Ready(now time.Time) Readiness {
	r := Readiness{Waits: []string{}}
	if a.View != nil {
		if why := a.View().Waits; why != "" {
			r.Waits = append(r.Waits, why)
		}
	}
	if a.ProxySync != nil {
		if last, _ := a.ProxySync(); last.IsZero() {
			r.Waits = append(r.Waits, "the service proxy has not written all Services yet")
		}
	}
	if why := a.waitsForPeers(now); why != "" {
		r.Waits = append(r.Waits, why)
	}
	r.Ready = len(r.Waits) == 0
	return r
}

func (a Agent) waitsForPeers(now time.Time) string {
	if a.PeersUnknown {
		return "the cluster's BGPPeers have not been read yet"
	}
	if a.Announcer == nil {
		return ""
	}
	down, up := Status{Peers: a.Announcer.Peers()}.peersDown()
	switch named := strings.Join(down, ", "); {
	case len(down) == 0:
		return ""
	case up == 0:
		return "no BGP session is established: with " + named
	case now.Sub(a.Started) < PeerGrace:
		return fmt.Sprintf("BGP sessions are not established, for which it waits for %s: with %s", PeerGrace, named)
	}
	return ""
}

// ReadyEndpoint serves the readiness of a process. A process without it is ready if it
// answers on its socket.
func ReadyEndpoint(ready func() Readiness) socket.Endpoint {
	return socket.Endpoint{Pattern: "GET " + readyPath, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(ready()) // the client may be gone
	})}
}

// FetchReady queries the readiness of the process that serves the socket at path.
func FetchReady(ctx context.Context, path string) (r Readiness, err error) {
	body, err := socket.Ask(ctx, path, http.MethodGet, readyPath, nil)
	if err != nil {
		return r, err
	}
	defer body.Close()
	err = socket.Decode(body, path, limit.Item, &r)
	return r, err
}
