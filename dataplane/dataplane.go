// Package dataplane is the door to whatever forwards packets: three idempotent
// verbs toward it, and counters back. Its implementations live below
// (dataplane/xdp, dataplane/fake); the suite that all of them pass is
// lab/conformance.
package dataplane

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// ErrUnsupported is what a data plane answers, wrapped with a reason, to a
// frontend that it cannot serve as asked.
var ErrUnsupported = errors.New("not supported by this data plane")

// Unsupported refuses a frontend by name.
func Unsupported(k service.Key, what string) error {
	return fmt.Errorf("%s: %s: %w", k, what, ErrUnsupported)
}

// RefuseKey says what no frontend can be at; empty for one that can.
func RefuseKey(k service.Key) string {
	switch k.Protocol {
	case service.TCP, service.UDP, service.SCTP:
		if k.Port == 0 && !k.Range() {
			return "port 0"
		}
	case service.AnyProtocol:
		if !k.Whole() {
			return "any protocol on some ports only: want TCP, UDP or SCTP"
		}
	default:
		return fmt.Sprintf("%s: want TCP, UDP, SCTP or, for a whole address, any", k.Protocol)
	}
	if k.Range() && k.Last < k.Port {
		return "a range that ends before it begins"
	}
	return ""
}

// DataPlane holds frontends. Its verbs are idempotent, may be called again
// after a failure, and each leaves the frontend either as it was or as asked:
// traffic never sees a half-written one. Calls come from one goroutine, but
// for Counters, which may come from any.
type DataPlane interface {
	// List gives what is really held, also by a predecessor that is gone:
	// each frontend as it was asked for, but for names and nodes.
	List() ([]desired.Frontend, error)
	// Upsert makes the data plane hold f just as given. A backend that is
	// left out takes no packets any more; one with weight 0 keeps its
	// established flows.
	Upsert(f desired.Frontend) error
	// Delete removes a frontend; one that is absent is no error.
	Delete(k service.Key) error
	// Counters gives the counters of every frontend held.
	Counters() ([]FrontendCounters, error)
	// Describe tells what this data plane is and how it is attached.
	Describe() Description
	// Close lets go of it; what it holds goes on forwarding.
	Close() error
}

// Peered is a data plane that remembers flows and hands the packets of those
// that it does not know to other balancers that are leaving. It alone is waited
// for when it leaves itself: nobody hands anything to another.
type Peered interface {
	// SetBalancers names all other balancers, sorted: packets are accepted from
	// them alone. Those of them that drain are asked about unknown flows; an
	// empty list ends that. It comes before the first Upsert.
	SetBalancers(all, draining []netip.Addr) error
	// Prepare makes it ready to be handed packets, which it need not be before
	// it drains itself. SetBalancers with any that drain does so, too. The first
	// call takes a tenth of a second of processor time.
	Prepare() error
	// Remembered counts the flows that would break if this data plane went
	// now. It may be called from any goroutine.
	Remembered() (flows int, err error)
}

// Canonical is a data plane that does not keep all that a frontend says, but
// serves it nevertheless: what it lists is canonical.
type Canonical interface {
	// Canonical gives what this data plane keeps of f. What it lists after an
	// Upsert of f is the Same as that.
	Canonical(f desired.Frontend) desired.Frontend
}

// Counts are totals since the frontend or backend came to be held.
type Counts struct {
	// Packets and Bytes are toward the servers; Bytes are of the IP packet as
	// it came from the client.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Flows are new flows: SYNs for TCP; where there is a flow table, its
	// entries made for UDP.
	Flows uint64 `json:"flows"`
}

// SYNCounts are what has happened at a frontend that is protected from floods of SYNs.
type SYNCounts struct {
	// Guarded says that it is being protected now.
	Guarded bool `json:"guarded"`
	// CookiesSent are SYN-ACKs with a cookie; CookiesAccepted the connections that
	// they opened, CookiesRejected ACKs of no known flow that had no valid one.
	CookiesSent     uint64 `json:"cookiesSent"`
	CookiesAccepted uint64 `json:"cookiesAccepted"`
	CookiesRejected uint64 `json:"cookiesRejected"`
	// ChallengesSent went to sources that were not validated, ChallengesAnswered
	// validated one, and Admitted are SYNs of such a source.
	ChallengesSent     uint64 `json:"challengesSent"`
	ChallengesAnswered uint64 `json:"challengesAnswered"`
	Admitted           uint64 `json:"admitted"`
}

// Events gives the counters by name.
func (c SYNCounts) Events() map[string]uint64 {
	return map[string]uint64{
		"cookie-sent": c.CookiesSent, "cookie-accepted": c.CookiesAccepted, "cookie-rejected": c.CookiesRejected,
		"challenge-sent": c.ChallengesSent, "challenge-answered": c.ChallengesAnswered, "admitted": c.Admitted,
	}
}

// FrontendCounters are the counters of one frontend and its backends. A data
// plane may count a server that several frontends have once for all of them.
type FrontendCounters struct {
	Key      service.Key
	Total    Counts
	Backends map[string]Counts // by the backend's AddrPort as text
	SYN      SYNCounts
}

// Description is a data plane in words.
type Description struct {
	// Kind is "xdp", "memory" and so on.
	Kind string `json:"kind"`
	// Attached says where and how: one line an interface, with the reason
	// for every fall-back ("eth0: generic: driver has no native XDP").
	Attached []string `json:"attached,omitempty"`
	// Warnings are what it cannot do as well as it should, with the mend.
	Warnings []string `json:"warnings,omitempty"`
	// Drops are packets dropped, by the name of the reason.
	Drops map[string]uint64 `json:"drops,omitempty"`
}
