package crd

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/internal/shorten"
)

// SessionsOn returns the label selector of the BGPSessions on the node of a load balancer, "node"
// or "node/pod".
func SessionsOn(by string) string {
	node, _, _ := strings.Cut(by, "/")
	return v1alpha1.LabelNode + "=" + labelValue(node)
}

// SessionOf returns the BGPSession of a load balancer, "node" or "node/pod", with a peer.
func SessionOf(by string, p advertise.Peer, owners []metav1.OwnerReference) v1alpha1.BGPSession {
	peer, parts := cmp.Or(p.Name, p.Address), strings.SplitN(by, "/", 2)
	return v1alpha1.BGPSession{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "BGPSession"},
		ObjectMeta: metav1.ObjectMeta{
			Name: validName(validation.DNS1123SubdomainMaxLength, append(parts, peer)...), OwnerReferences: owners,
			Labels: map[string]string{v1alpha1.LabelNode: labelValue(parts[0]), v1alpha1.LabelPeer: labelValue(peer)},
		},
		Status: v1alpha1.BGPSessionStatus{
			Node: by, Peer: peer, PeerAddress: p.Address, State: p.State, Since: metav1.NewTime(p.Since.Truncate(time.Second)),
			LastError: shorten.Text(p.LastError, shorten.EventNote), AdvertisedPrefixes: int32(p.Sent), BFD: shorten.Text(p.BFD, shorten.EventNote),
		},
	}
}

func labelValue(name string) string { return validName(validation.LabelValueMaxLength, name) }

// validName joins parts to a name of a DNS subdomain, which is also a label value if it is
// short enough. Different parts have different names: if the parts alone are invalid, too long
// or ambiguous, the name ends with a hash.
func validName(limit int, parts ...string) string {
	const separator = "--"
	unusable := func(part string) bool {
		return len(validation.IsDNS1123Subdomain(part)) > 0 || len(parts) > 1 && strings.Contains(part, separator)
	}
	name := strings.Join(parts, separator)
	if len(name) <= limit && !slices.ContainsFunc(parts, unusable) {
		return name
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	hash := fmt.Sprintf("%s%x", separator, sum[:8])
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	name = strings.Join(words, "-")
	return strings.Trim(name[:min(len(name), limit-len(hash))]+hash, "-")
}
