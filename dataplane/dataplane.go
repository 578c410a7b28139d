// Package dataplane is the interface to everything that forwards packets: three
// idempotent verbs, and counters. Its implementations are below (dataplane/xdp,
// dataplane/fake). The suite that all of them pass is lab/conformance.
package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// ErrUnsupported is the error, wrapped with a reason, for a frontend that a data plane
// cannot serve as configured.
var ErrUnsupported = errors.New("not supported by this data plane")

// Unsupported returns an error that rejects a frontend by name.
func Unsupported(k service.Key, what string) error {
	return fmt.Errorf("%s: %s: %w", k, what, ErrUnsupported)
}

// RefuseKey returns why no frontend can have this key, or an empty string if it is valid.
func RefuseKey(k service.Key) string {
	switch k.Protocol {
	case service.TCP, service.UDP, service.SCTP:
		if k.Port == 0 && !k.Range() {
			return "port 0"
		}
	case service.AnyProtocol:
		if !k.Whole() {
			return "any protocol on some ports: use TCP, UDP or SCTP"
		}
	default:
		return fmt.Sprintf("%s: use TCP, UDP, SCTP or, for all ports of an address, any", k.Protocol)
	}
	if k.Range() && k.Last < k.Port {
		return "the last port is below the first"
	}
	return ""
}

// DataPlane programs frontends. Its verbs are idempotent and can be repeated after a
// failure. Each leaves the frontend either unchanged or as desired: traffic never sees a
// partial write. Calls come from one goroutine, except Counters, which may come from any.
type DataPlane interface {
	// List returns what is actually programmed, including by a previous process: each
	// frontend as desired, except for names and nodes.
	List() ([]desired.Frontend, error)
	// Upsert programs f exactly as given. A backend that is left out receives no more
	// packets. One with weight 0 keeps its established flows.
	Upsert(f desired.Frontend) error
	// Delete removes a frontend. Deleting an absent one is not an error.
	Delete(k service.Key) error
	// Counters returns the counters of every programmed frontend.
	Counters() ([]FrontendCounters, error)
	// Describe reports the kind of data plane and how it is attached.
	Describe() Description
	// Close releases it. Programmed frontends keep forwarding.
	Close() error
}

// Peered is a data plane that tracks flows and hands packets of unknown flows to other
// load balancers that are draining. Only such a data plane is waited for when it drains
// itself: with any other, nothing would be handed over.
type Peered interface {
	// SetBalancers sets all other load balancers, sorted: handed-over packets are
	// accepted only from them. Those that drain are queried for unknown flows. An
	// empty list disables that. It is called before the first Upsert.
	SetBalancers(all, draining []netip.Addr) error
	// Prepare makes the data plane accept handed-over packets, which is needed only
	// once it drains itself. SetBalancers with draining ones does so too. The first
	// call takes a tenth of a second of CPU time.
	Prepare() error
	// Remembered counts the flows that would break if this data plane went away now.
	// It may be called from any goroutine.
	Remembered() (flows int, err error)
}

// Table is how full a table of a data plane is.
type Table struct {
	// Name is stable.
	Name string `json:"name"`
	// Used is the number of entries in use.
	Used int `json:"used"`
	// Size is the maximum number of entries.
	Size int `json:"size"`
}

// Canonical is a data plane that serves a frontend without storing all of its fields:
// what it lists is canonical.
type Canonical interface {
	// Canonical returns what this data plane stores of f. After an Upsert of f, List
	// returns a frontend that is the Same as that.
	Canonical(f desired.Frontend) desired.Frontend
}

// Reserver is a data plane that programs many new frontends faster if it knows them first.
type Reserver interface {
	// Reserve makes room for those frontends that are new, before Upsert programs them. An
	// error is not final: Upsert makes room, too.
	Reserve(frontends []desired.Frontend) error
}

// Counts are totals since the frontend or backend was programmed.
type Counts struct {
	// Packets counts packets to backends.
	Packets uint64 `json:"packets"`
	// Bytes counts the bytes of these packets, as received from clients, from the IP
	// header on.
	Bytes uint64 `json:"bytes"`
	// Flows counts new flows: SYNs for TCP; for UDP, new entries of the flow table if
	// there is one.
	Flows uint64 `json:"flows"`
}

// SYNCounts are the events at a frontend with SYN flood protection.
type SYNCounts struct {
	// Guarded means that the frontend is protected at the moment.
	Guarded bool `json:"guarded"`
	// CookiesSent counts SYN-ACKs with a SYN cookie.
	CookiesSent uint64 `json:"cookiesSent"`
	// CookiesAccepted counts connections opened with a valid cookie.
	CookiesAccepted uint64 `json:"cookiesAccepted"`
	// CookiesRejected counts ACKs of unknown flows without a valid cookie.
	CookiesRejected uint64 `json:"cookiesRejected"`
	// ChallengesSent counts challenges to sources that are not validated.
	ChallengesSent uint64 `json:"challengesSent"`
	// ChallengesAnswered counts sources that answered and are validated.
	ChallengesAnswered uint64 `json:"challengesAnswered"`
	// Admitted counts SYNs of validated sources.
	Admitted uint64 `json:"admitted"`
}

// Events returns the counters by name.
func (c SYNCounts) Events() map[string]uint64 {
	return map[string]uint64{
		"cookie-sent": c.CookiesSent, "cookie-accepted": c.CookiesAccepted, "cookie-rejected": c.CookiesRejected,
		"challenge-sent": c.ChallengesSent, "challenge-answered": c.ChallengesAnswered, "admitted": c.Admitted,
	}
}

// FrontendCounters are the counters of one frontend and its backends. A data plane may
// count a backend shared by several frontends once for all of them.
type FrontendCounters struct {
	Key      service.Key
	Total    Counts
	Backends map[string]Counts // by the backend's AddrPort as text
	SYN      SYNCounts
}

// Description describes a data plane.
type Description struct {
	// Kind is "xdp" or "ipvs".
	Kind string `json:"kind"`
	// Attached has one line per interface: how programs are attached, and the reason for a
	// fallback ("eth0: generic: driver has no native XDP").
	Attached []string `json:"attached,omitempty"`
	// Warnings are limitations, with their fix.
	Warnings []string `json:"warnings,omitempty"`
	// Drops counts dropped packets by drop reason.
	Drops map[string]uint64 `json:"drops,omitempty"`
}

// Interfaces returns what the lines of Attached are about. IPVS is in a network namespace,
// not at interfaces.
func (d *Description) Interfaces() (names []string) {
	if d.Kind == "ipvs" {
		return nil
	}
	for _, line := range d.Attached {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, name)
	}
	return names
}
