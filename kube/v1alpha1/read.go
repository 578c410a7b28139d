package v1alpha1

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead/fairlead/addresspool"
)

// Pool is an AddressPool, parsed.
//
// +kubebuilder:object:generate=false
type Pool struct {
	addresspool.Pool
	namespaces            []string
	ofNamespace, ofObject labels.Selector // nil: not given
}

// ByAge sorts AddressPools, the oldest first: of two that overlap it counts.
func ByAge(pools []*AddressPool) []*AddressPool {
	return slices.SortedFunc(slices.Values(pools), func(a, b *AddressPool) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// Parse reads an AddressPool. The error names all fields that are wrong.
func (p *AddressPool) Parse() (Pool, error) {
	s := &p.Spec
	made := Pool{
		Pool: addresspool.Pool{
			Name: p.Name, Manual: s.AutoAssign != nil && !*s.AutoAssign, Priority: s.Priority, AvoidBuggy: s.AvoidBuggyIPs,
		},
		namespaces: s.Namespaces,
	}
	var errs [4]error
	made.Addresses, errs[0] = parseRanges("spec.addresses", s.Addresses)
	made.Reserved, errs[1] = parseRanges("spec.reserved", s.Reserved)
	made.ofNamespace, errs[2] = selector("spec.namespaceSelector", s.NamespaceSelector)
	made.ofObject, errs[3] = selector("spec.serviceSelector", s.ServiceSelector)
	return made, errors.Join(errs[:]...)
}

func parseRanges(field string, texts []AddressRange) (all []addresspool.Range, err error) {
	for i, text := range texts {
		r, wrong := addresspool.ParseRange(string(text))
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s[%d]: %w", field, i, wrong))
		}
		all = append(all, r)
	}
	return all, err
}

// selector reads a selector; nil where there is none.
func selector(field string, s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, nil
	}
	made, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return made, nil
}

func matches(s labels.Selector, of map[string]string) bool {
	return s == nil || s.Matches(labels.Set(of))
}

// Barred says why a Service may not have addresses of a pool; nothing where it
// may.
func (p Pool) Barred(namespace string, ofNamespace, ofService map[string]string) string {
	restricted := len(p.namespaces) > 0 || p.ofNamespace != nil
	inside := slices.Contains(p.namespaces, namespace) || p.ofNamespace != nil && matches(p.ofNamespace, ofNamespace)
	switch {
	case restricted && !inside:
		return "is not for namespace " + namespace
	case !matches(p.ofObject, ofService):
		return "is for Services with labels " + p.ofObject.String()
	}
	return ""
}

// Peer is what a BGPPeer says to a node that it is for.
//
// +kubebuilder:object:generate=false
type Peer struct {
	Address netip.AddrPort
	// AS is 0 for the balancers' own.
	AS             uint32
	PasswordSecret string // name of a Secret, or empty
	HoldTime       time.Duration
	BFD            bool
}

// Wrong is an object that is left out, and why.
//
// +kubebuilder:object:generate=false
type Wrong struct {
	Object string // as "BGPPeer rack-1"
	Err    error
}

// PeersOf gives the peers of a node with these labels, by name; and those that
// are left out.
func PeersOf(all []*BGPPeer, node map[string]string) (peers map[string]Peer, out []Wrong) {
	peers = map[string]Peer{}
	for _, p := range all {
		s := p.Spec
		of, wrong := selector("spec.nodeSelector", s.NodeSelector)
		addr, unparsed := netip.ParseAddr(s.Address)
		if unparsed != nil {
			wrong = errors.Join(wrong, fmt.Errorf("spec.address: %q is not an IP address", s.Address))
		}
		if wrong != nil {
			out = append(out, Wrong{"BGPPeer " + p.Name, wrong})
			continue
		}
		if matches(of, node) {
			peers[p.Name] = Peer{
				Address: netip.AddrPortFrom(addr, uint16(s.Port)), AS: uint32(s.AS), PasswordSecret: s.PasswordSecret,
				HoldTime: time.Duration(s.HoldTimeSeconds) * time.Second, BFD: s.BFD == nil || *s.BFD,
			}
		}
	}
	return peers, out
}
