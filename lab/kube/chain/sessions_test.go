package chain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/lab/testkit"
)

// sessions follows BGPSessions while a router stops and starts, a peer is configured that
// does not answer, and an agent stops and starts.
func (w *world) sessions(t *testing.T) {
	vip := w.serving(t, "web", "s1")
	w.routed(t, vip, "n1", "n2")
	w.listed(t, "n1 router 10.0.0.254 established 1 ", "n2 router 10.0.0.254 established 1 ")
	before := w.bgpSessions(t)
	must(t, w.router.Stop())
	w.listed(t, "n1 router 10.0.0.254 connect 0 10.0.0.254:179 refuses", "n2 router 10.0.0.254 connect 0 10.0.0.254:179 refuses")
	w.route(t)
	w.listed(t, "n1 router 10.0.0.254 established 1 ", "n2 router 10.0.0.254 established 1 ")
	for i, o := range w.bgpSessions(t) {
		if o.UID != before[i].UID || !o.Status.Since.After(before[i].Status.Since.Time) {
			t.Errorf("%s: another session since %s, was since %s", o.Name, o.Status.Since, before[i].Status.Since)
		}
	}
	must(t, w.Apply(t.Context(), `{apiVersion: fairlead.io/v1alpha1, kind: BGPPeer, metadata: {name: absent}, spec: {peerAddress: 10.0.0.31}}`))
	w.listed(t, "n1 absent 10.0.0.31 connect 0 10.0.0.31:179 refuses", "n1 router 10.0.0.254 established 1 ",
		"n2 absent 10.0.0.31 connect 0 10.0.0.31:179 refuses", "n2 router 10.0.0.254 established 1 ")
	w.remove(t, "bgppeers", "absent")
	w.listed(t, "n1 router 10.0.0.254 established 1 ", "n2 router 10.0.0.254 established 1 ")
	must(t, w.processes["n2"].Stop(20*time.Second))
	w.listed(t, "n1 router 10.0.0.254 established 1 ")
	w.agent(t, "n2")
	w.listed(t, "n1 router 10.0.0.254 established 1 ", "n2 router 10.0.0.254 established 1 ")
	for _, o := range w.bgpSessions(t) {
		if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].Kind != "Node" || o.OwnerReferences[0].Name != o.Status.Node {
			t.Errorf("the owners of %s are %+v", o.Name, o.OwnerReferences)
		}
	}
	w.drop(t, "web")
	w.routed(t, vip)
}

// listed waits until the BGPSessions begin so: node, peer, address, state, prefixes, error.
func (w *world) listed(t *testing.T, want ...string) {
	t.Helper()
	testkit.Eventually(t, 2*within, func() error {
		all := w.bgpSessions(t)
		ok := len(all) == len(want)
		var got []string
		for i, o := range all {
			s := o.Status
			got = append(got, fmt.Sprint(s.Node, " ", s.Peer, " ", s.PeerAddress, " ", s.State, " ", s.AdvertisedPrefixes, " ", s.LastError))
			ok = ok && strings.HasPrefix(got[i], want[i])
		}
		if !ok {
			return fmt.Errorf("the sessions are %q, want %q", got, want)
		}
		return nil
	})
}

func (w *world) bgpSessions(t *testing.T) []v1alpha1.BGPSession {
	t.Helper()
	text, err := w.api.CoreV1().RESTClient().Get().AbsPath("/apis/fairlead.io/v1alpha1/namespaces/fairlead/bgpsessions").SetHeader("Accept", "application/json").DoRaw(t.Context())
	must(t, err)
	var list v1alpha1.BGPSessionList
	must(t, json.Unmarshal(text, &list))
	return list.Items
}
