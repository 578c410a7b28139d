package manifest

import (
	"encoding/base64"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// Kinds for routing.
const (
	kindPeer, kindAdvertisement, kindPool = "BGPPeer", "Advertisement", "AddressPool"
	kindSecret                            = "Secret"
	kindQuarantine                        = "Quarantine"
	ownVersion                            = "fairlead.io/v1alpha1"
	// passwordKey is the key of the password in a Secret.
	passwordKey = "password"
)

// scoped removes the namespace from the key of a cluster-scoped object.
func scoped(k object.Key) object.Key {
	if k.Kind == kindPeer || k.Kind == kindAdvertisement || k.Kind == kindPool || k.Kind == kindQuarantine || k.Kind == kindNetwork {
		k.Namespace = ""
	}
	return k
}

// secretText is the shape of a v1 Secret.
type secretText struct {
	metav1.TypeMeta   `json:""`
	metav1.ObjectMeta `json:"metadata"`
	Type              string            `json:"type"`
	Immutable         bool              `json:"immutable"`
	Data              map[string]string `json:"data"`
	StringData        map[string]string `json:"stringData"`
}

// routing reads a routing object.
func (r *reader) routing(n *yaml.Node, k object.Key, at object.Origin) (o *object.Object, fs []object.Fault, faults []located) {
	switch k.Kind {
	case kindPeer:
		p := &v1alpha1.BGPPeer{}
		if faults = r.dec.decode(n, p); len(faults) == 0 {
			o, fs = object.Other(k, &p.ObjectMeta, at, p), faultsOf(&p.ObjectMeta, crd.ValidatePeer(p))
		}
	case kindAdvertisement:
		a := &v1alpha1.Advertisement{}
		if faults = r.dec.decode(n, a); len(faults) == 0 {
			o, fs = object.Other(k, &a.ObjectMeta, at, a), faultsOf(&a.ObjectMeta, crd.ValidateAdvertisement(a))
			if !r.cluster {
				fs = append(fs, notHere(a.Spec.Addresses)...)
			}
		}
	case kindPool:
		p := &v1alpha1.AddressPool{}
		if faults = r.dec.decode(n, p); len(faults) == 0 {
			_, err := crd.ParsePool(p)
			o, fs = object.Other(k, &p.ObjectMeta, at, p), faultsOf(&p.ObjectMeta, err)
		}
	case kindQuarantine:
		q := &v1alpha1.Quarantine{}
		if faults = r.dec.decode(n, q); len(faults) == 0 {
			_, err := crd.ParseQuarantine(q)
			o, fs = object.Other(k, &q.ObjectMeta, at, q), faultsOf(&q.ObjectMeta, err)
		}
	case kindNetwork, kindLease:
		return r.network(n, k, at)
	case kindSecret:
		s := &secretText{}
		if faults = r.dec.decode(n, s); len(faults) == 0 {
			password, f := s.password()
			o, fs = object.Other(k, &s.ObjectMeta, at, password), append(checkMeta(&s.ObjectMeta, validation.IsDNS1123Subdomain), f...)
		}
	}
	return o, fs, faults
}

// notHere rejects address kinds that exist only in a cluster: in a directory, all addresses
// of Services are LoadBalancerIP addresses, in whatever field.
func notHere(kinds []v1alpha1.AddressKind) []object.Fault {
	other := func(k v1alpha1.AddressKind) bool {
		return k == v1alpha1.AddressExternalIP || k == v1alpha1.AddressClusterIP
	}
	if i := slices.IndexFunc(kinds, other); i >= 0 {
		return []object.Fault{{Field: fmt.Sprintf("spec.addresses[%d]", i),
			Message: fmt.Sprintf("%s is of a cluster only; all addresses in a folder, also externalIPs, are LoadBalancerIP ones: leave spec.addresses out", kinds[i])}}
	}
	return nil
}

// faultsOf returns the faults of a Fairlead object.
func faultsOf(m *metav1.ObjectMeta, err error) []object.Fault {
	faults := checkMeta(m, validation.IsDNS1123Subdomain)
	if m.Namespace != "" {
		faults = append(faults, object.Fault{Field: "metadata.namespace", Message: "objects of this kind are in no namespace; leave it out"})
	}
	for _, e := range crd.FieldErrors(err) {
		faults = append(faults, object.Fault{Field: e.Field, Message: e.Message})
	}
	return faults
}

// password returns the password of a Secret: its first line, as in a password file.
func (s *secretText) password() (string, []object.Fault) {
	text, ok := s.StringData[passwordKey]
	field := "stringData[" + passwordKey + "]"
	if !ok {
		field = "data[" + passwordKey + "]"
		b, err := base64.StdEncoding.DecodeString(s.Data[passwordKey])
		if err != nil {
			return "", []object.Fault{{Field: field, Message: "is not base64; under stringData it may stand as it is"}}
		}
		text = string(b)
	}
	password := advertise.Password(text)
	if password == "" {
		return "", []object.Fault{{Field: field, Message: "is missing or empty; the password of a BGPPeer is what is read of a Secret here"}}
	}
	return password, nil
}

// routing is the BGP configuration of this node in the objects.
type routing struct {
	labels  map[string]string
	onPeers func([]crd.Peer) []problem.Problem // nil: peers are ignored
	// of are the objects that the rest was computed from.
	of        []*object.Object
	looked    bool
	announced *crd.Advertised
	problems  []problem.Problem
	// passwords are the last known passwords by Secret.
	passwords map[string]string
}

// look computes the BGP configuration and its problems, and delivers the peers. An
// unchanged result is the same again, at no cost, except that peers with problems are
// delivered again.
func (r *routing) look(objects []*object.Object) (source.Advertisements, []problem.Problem) {
	of := slices.DeleteFunc(slices.Clone(objects), func(o *object.Object) bool { return o.Value == nil })
	if !r.looked || !slices.Equal(of, r.of) || len(r.problems) > 0 {
		r.make(of)
	}
	if r.announced == nil {
		return nil, r.problems
	}
	return r.announced, r.problems
}

func (r *routing) make(of []*object.Object) {
	var advertisements []*v1alpha1.Advertisement
	var pools []*v1alpha1.AddressPool
	var peers []*v1alpha1.BGPPeer
	for _, o := range of {
		switch v := o.Value.(type) {
		case *v1alpha1.Advertisement:
			advertisements = append(advertisements, v)
		case *v1alpha1.AddressPool:
			pools = append(pools, v)
		case *v1alpha1.BGPPeer:
			peers = append(peers, v)
		case string:
			if r.passwords == nil {
				r.passwords = map[string]string{}
			}
			r.passwords[o.Key.Name] = v
		}
	}
	if !r.looked || !slices.Equal(of, r.of) {
		r.announced, _ = crd.AdvertisedBy(advertisements, pools, r.labels) // invalid ones are already rejected
	}
	r.looked, r.of, r.problems = true, of, nil
	if r.onPeers == nil {
		return
	}
	all, _ := crd.PeersOf(peers, r.labels)
	var usable []crd.Peer
	for _, p := range all {
		p.Password = r.passwords[p.PasswordSecretRef]
		if p.PasswordSecretRef != "" && p.Password == "" {
			r.problems = append(r.problems, problem.Problem{Object: p.Object(), Field: "spec.passwordSecretRef",
				Message: "Secret " + p.PasswordSecretRef + " not found in this folder: add it. The peer is left out until then"})
			continue
		}
		usable = append(usable, p)
	}
	r.problems = append(r.problems, r.onPeers(usable)...)
	for i, problem := range r.problems {
		at := slices.IndexFunc(of, func(o *object.Object) bool { return o.Key.String() == problem.Object })
		if at >= 0 {
			r.problems[i].Where = of[at].Where()
		}
	}
}
