package crd

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
)

// Fingerprint is the part of a hash by which a NodeReport refers to a Service. With their
// names, a report of many Services would exceed what etcd stores in one object.
type Fingerprint [6]byte

// FingerprintOf returns the fingerprint of a Service that was created at a time.
func FingerprintOf(id service.ID, created time.Time) (f Fingerprint) {
	text := binary.BigEndian.AppendUint64([]byte(id.String()), uint64(created.Unix()))
	sum := sha256.Sum256(text)
	copy(f[:], sum[:])
	return f
}

// ReportName returns the name of the NodeReport and the NodeHeartbeat of a load balancer, "node"
// or "node/pod".
func ReportName(by string) string {
	if node, pod, dedicated := strings.Cut(by, "/"); dedicated {
		return validName(validation.DNS1123SubdomainMaxLength, node, pod)
	}
	return by
}

// ReportAs returns the name of a NodeReport's load balancer: "node" or "node/pod".
func ReportAs(r *v1alpha1.NodeReport) string {
	return cmp.Or(r.Status.Node, r.Name) // older agents write no Node
}

// outcome identifies an Outcome in a NodeReport.
type outcome struct{ notProgrammed, notAdvertised string }

// ReportOf returns the status of the NodeReport of a load balancer.
func ReportOf(node string, all []source.Outcome) v1alpha1.NodeReportStatus {
	groups := map[outcome][]Fingerprint{}
	s := v1alpha1.NodeReportStatus{Node: node, Services: int32(len(all))}
	for _, o := range all {
		of := outcome{o.NotProgrammed, o.NotAdvertised}
		groups[of] = append(groups[of], FingerprintOf(o.ID, o.Created))
		if o.NotProgrammed == "" {
			s.Programmed++
		}
		if o.NotAdvertised == "" {
			s.Advertised++
		}
	}
	for of, services := range groups {
		slices.SortFunc(services, func(a, b Fingerprint) int { return bytes.Compare(a[:], b[:]) })
		entry := v1alpha1.Outcome{NotProgrammed: of.notProgrammed, NotAdvertised: of.notAdvertised}
		for _, f := range services {
			entry.Services = append(entry.Services, f[:]...)
		}
		s.Outcomes = append(s.Outcomes, entry)
	}
	slices.SortFunc(s.Outcomes, func(a, b v1alpha1.Outcome) int {
		return cmp.Or(cmp.Compare(a.NotProgrammed, b.NotProgrammed), cmp.Compare(a.NotAdvertised, b.NotAdvertised))
	})
	return s
}

// Differ calls a function with each Service of which two NodeReports say something else, in
// no order, possibly twice. Either may be nil.
func Differ(a, b *v1alpha1.NodeReportStatus, different func(Fingerprint)) {
	lists := map[outcome][2][]byte{}
	for i, s := range []*v1alpha1.NodeReportStatus{a, b} {
		if s == nil {
			continue
		}
		for _, o := range s.Outcomes {
			of := outcome{o.NotProgrammed, o.NotAdvertised}
			both := lists[of]
			both[i] = o.Services
			lists[of] = both
		}
	}
	for _, both := range lists {
		differ(both[0], both[1], different)
	}
}

// differ calls a function with each fingerprint that is in only one of two sorted lists.
func differ(a, b []byte, different func(Fingerprint)) {
	const n = len(Fingerprint{})
	for len(a) >= n && len(b) >= n {
		switch c := bytes.Compare(a[:n], b[:n]); {
		case c == 0:
			a, b = a[n:], b[n:]
		case c < 0:
			different(Fingerprint(a[:n]))
			a = a[n:]
		default:
			different(Fingerprint(b[:n]))
			b = b[n:]
		}
	}
	for _, rest := range [][]byte{a, b} {
		for ; len(rest) >= n; rest = rest[n:] {
			different(Fingerprint(rest[:n]))
		}
	}
}

// OutcomeOf returns what a NodeReport says of a Service, or nil.
func OutcomeOf(s *v1alpha1.NodeReportStatus, f Fingerprint) *v1alpha1.Outcome {
	for i := range s.Outcomes {
		in := s.Outcomes[i].Services
		n := len(in) / len(f)
		hash := func(j int) []byte { return in[j*len(f) : (j+1)*len(f)] }
		if j := sort.Search(n, func(j int) bool { return bytes.Compare(hash(j), f[:]) >= 0 }); j < n && bytes.Equal(hash(j), f[:]) {
			return &s.Outcomes[i]
		}
	}
	return nil
}

// Renewed returns when a heartbeat was last renewed: by the clock of the API server, because
// those of nodes may be wrong.
func Renewed(h *v1alpha1.NodeHeartbeat) (last time.Time) {
	for _, m := range h.ManagedFields {
		if m.Time != nil && m.Time.After(last) {
			last = m.Time.Time
		}
	}
	if last.IsZero() {
		return h.Status.RenewTime.Time
	}
	return last
}
