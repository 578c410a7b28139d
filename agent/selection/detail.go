package selection

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Settings are how a frontend is programmed, or should be.
type Settings struct {
	// ForwardingMode is how packets reach the backends.
	ForwardingMode service.Method `json:"forwardingMode"`
	// Encapsulation is the format of the tunnel.
	Encapsulation service.Encapsulation `json:"encapsulation,omitempty"`
	// Scheduler selects the backend of a new flow.
	Scheduler service.Scheduler `json:"scheduler"`
	// MaglevTableSize is the size of the Maglev table.
	MaglevTableSize int `json:"maglevTableSize,omitempty"`
	// ConnectionConsistency is how flows stay with their backends.
	ConnectionConsistency service.Survival `json:"connectionConsistency,omitempty"`
	// Affinity is how long a client stays with its backend.
	Affinity string `json:"affinity,omitempty"`
	// SourceRanges are the only clients that are served; all if empty.
	SourceRanges []netip.Prefix `json:"sourceRanges,omitempty"`
	// DenySourceRanges are clients that are not served.
	DenySourceRanges []netip.Prefix `json:"denySourceRanges,omitempty"`
	// RateLimits are as in the annotation: "client-cps=50,pps=100000".
	RateLimits string `json:"rateLimits,omitempty"`
	// SYNProtection is when it is protected against SYN floods.
	SYNProtection service.SYNProtection `json:"synProtection,omitempty"`
	// Backends is the number of backends.
	Backends int `json:"backends"`
}

// SettingsOf returns the settings of a frontend.
func SettingsOf(f desired.Frontend) *Settings {
	s := &Settings{
		ForwardingMode: f.Method, Encapsulation: f.Encapsulation, Scheduler: f.Scheduler, MaglevTableSize: f.RingSize, ConnectionConsistency: f.Survival,
		SourceRanges: f.Allow, DenySourceRanges: f.Deny, RateLimits: f.Limits.Annotation(), SYNProtection: f.Protection(), Backends: len(f.Backends),
	}
	if f.Affinity > 0 {
		s.Affinity = f.Affinity.String()
	}
	return s
}

// String returns "tunnel, maglev 16381, second-chance".
func (s Settings) String() string {
	words := []string{string(s.ForwardingMode), string(s.Scheduler)}
	if s.MaglevTableSize > 0 && s.Scheduler == service.Maglev {
		words[1] = fmt.Sprintf("%s %d", s.Scheduler, s.MaglevTableSize)
	}
	if s.Encapsulation == service.GUE {
		words[0] += " (gue)"
	}
	add := func(given bool, word string) {
		if given {
			words = append(words, word)
		}
	}
	add(s.ConnectionConsistency != "", string(s.ConnectionConsistency))
	add(s.Affinity != "", "affinity "+s.Affinity)
	add(len(s.SourceRanges) > 0, fmt.Sprintf("%d source ranges", len(s.SourceRanges)))
	add(len(s.DenySourceRanges) > 0, fmt.Sprintf("%d denied source ranges", len(s.DenySourceRanges)))
	add(s.RateLimits != "", s.RateLimits)
	return strings.Join(words, ", ")
}

// Frontend is how a frontend should be, and is, in the kernel.
type Frontend struct {
	// Kind is where the VIP comes from: LoadBalancerIP, ExternalIP or ClusterIP.
	Kind string `json:"kind"`
	// Desired is nil if nothing should be programmed.
	Desired *Settings `json:"desired,omitempty"`
	// Programmed is nil if the data plane has no such frontend.
	Programmed *Settings `json:"programmed,omitempty"`
	// Live means that Programmed was read from the kernel for this query. Otherwise it is
	// what the agent wrote.
	Live bool `json:"live"`
	// Differs lists what is not as desired.
	Differs []string `json:"differs,omitempty"`
	// Slots is the number of slots from which backends are selected.
	Slots int `json:"slots,omitempty"`
	// Error is why the kernel could not be read.
	Error string `json:"error,omitempty"`
}

// Backend is how a backend is checked, selected and reached.
type Backend struct {
	// Slots is the number of slots of the frontend's table that select it.
	Slots int `json:"slots,omitempty"`
	// ServingSince is when it began to take flows, if known.
	ServingSince time.Time `json:"servingSince,omitzero"`
	// DrainedSince is when it began to drain, if known.
	DrainedSince time.Time `json:"drainedSince,omitzero"`
	// MaxConnections is the number of connections at which it gets no new ones.
	MaxConnections uint32 `json:"maxConnections,omitempty"`
	// Check is its health check: "tcp 172.16.1.10:8080 every 1s".
	Check string `json:"check"`
	// Path is how the kernel sends packets to it.
	Path *dataplane.Path `json:"path,omitempty"`
}

// FrontendOf compares a planned frontend with what the data plane has, if it has it.
func FrontendOf(f *plan.Frontend, has *desired.Frontend, same func(a, b desired.Frontend) bool) *Frontend {
	d := &Frontend{Kind: f.Service.KindOf(f.Key.VIP).String()}
	if f.Want != nil {
		d.Desired = SettingsOf(*f.Want)
	}
	if has == nil {
		return d
	}
	d.Programmed = SettingsOf(*has)
	if f.Want != nil && !same(*f.Want, *has) {
		d.Differs = differences(*f.Want, *has)
	}
	return d
}

// differences lists what is not as desired: "scheduler rr instead of maglev".
func differences(want, has desired.Frontend) (all []string) {
	w, h := SettingsOf(want), SettingsOf(has)
	for _, field := range []struct {
		name      string
		want, has any
	}{
		{"forwarding mode", w.ForwardingMode, h.ForwardingMode}, {"encapsulation", w.Encapsulation, h.Encapsulation}, {"scheduler", w.Scheduler, h.Scheduler},
		{"Maglev table size", w.MaglevTableSize, h.MaglevTableSize}, {"connection consistency", w.ConnectionConsistency, h.ConnectionConsistency},
		{"affinity", w.Affinity, h.Affinity}, {"source ranges", fmt.Sprint(w.SourceRanges), fmt.Sprint(h.SourceRanges)},
		{"denied source ranges", fmt.Sprint(w.DenySourceRanges), fmt.Sprint(h.DenySourceRanges)}, {"rate limits", w.RateLimits, h.RateLimits},
		{"SYN protection", w.SYNProtection, h.SYNProtection},
	} {
		if field.want != field.has {
			all = append(all, fmt.Sprintf("%s %v instead of %v", field.name, field.has, field.want))
		}
	}
	return append(all, backendDifferences(want.Backends, has.Backends)...)
}

// namedDifferences limits how many backends are named.
const namedDifferences = 5

func backendDifferences(want, has []service.Backend) (all []string) {
	programmed := map[netip.AddrPort]service.Backend{}
	for _, b := range has {
		programmed[b.Addr] = b
	}
	for _, b := range want {
		h, ok := programmed[b.Addr]
		delete(programmed, b.Addr)
		switch {
		case !ok:
			all = append(all, fmt.Sprintf("backend %s is missing", b.Addr))
		case h.Weight != b.Weight:
			all = append(all, fmt.Sprintf("backend %s has weight %d instead of %d", b.Addr, h.Weight, b.Weight))
		case h.MaxConns != b.MaxConns:
			all = append(all, fmt.Sprintf("backend %s has max-connections %d instead of %d", b.Addr, h.MaxConns, b.MaxConns))
		case !h.Since.Equal(b.Since):
			all = append(all, fmt.Sprintf("backend %s has another start time", b.Addr))
		}
	}
	for a := range programmed {
		all = append(all, fmt.Sprintf("backend %s is still there", a))
	}
	slices.Sort(all)
	if more := len(all) - namedDifferences; more > 0 {
		all = append(all[:namedDifferences], fmt.Sprintf("%d more backends differ", more))
	}
	return all
}

// BackendOf describes a planned backend.
func BackendOf(b plan.Backend) *Backend {
	d := &Backend{ServingSince: b.Since, DrainedSince: b.Drained, MaxConnections: b.MaxConns, Check: "none"}
	if c := b.Target.Check; cmp.Or(c.Kind, service.CheckNone) != service.CheckNone {
		d.Check = fmt.Sprintf("%s %s every %s", c.Kind, b.Target.Addr, c.Interval)
		if c.Kind == service.CheckHTTP {
			d.Check = fmt.Sprintf("GET http://%s%s every %s", b.Target.Addr, c.Path, c.Interval)
		}
	}
	return d
}
