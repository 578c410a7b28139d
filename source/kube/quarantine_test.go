package kube

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/agent/kubectl"
	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
)

// awaitQuarantine drains the backends of the Service as kubectl fairlead does. The deployed
// permissions let the agent read what is drained.
func (r *routed) awaitQuarantine(c *labkube.Cluster) {
	r.t.Helper()
	user, err := c.KubeconfigFor("alice", "system:masters")
	if err != nil {
		r.t.Fatal(err)
	}
	config := kubectl.Config{Kubeconfig: user}
	r.slice(sliceOf("web-1", "web", "10.200.0.1", "10.200.0.2"))
	command := func(run func() error, want string) {
		r.t.Helper()
		if err := run(); fmt.Sprint(err) != want {
			r.t.Errorf("got %v, want %s", err, want)
		}
	}
	var out bytes.Buffer
	drain := func(q kubectl.Quarantine) func() error {
		return func() error { return kubectl.Drain(r.t.Context(), config, q, &out) }
	}
	undrain := func(q kubectl.Quarantine) func() error {
		return func() error { return kubectl.Undrain(r.t.Context(), config, q, &out) }
	}
	one := kubectl.Quarantine{Backend: "10.200.0.1:8080", Service: "default/web", Reason: "disk errors"}
	command(drain(kubectl.Quarantine{Backend: "10.200.0.3"}), `unknown backend 10.200.0.3; did you mean "10.200.0.1"?: see fairlead get backends`)
	command(drain(one), "<nil>")
	r.follower.await(func() error {
		if r.follower.snapshot == nil || len(r.follower.snapshot.Quarantines) != 1 {
			return fmt.Errorf("quarantines %+v, want one", r.follower.snapshot.Quarantines)
		}
		q := r.follower.snapshot.Quarantines[0]
		if q.Since.IsZero() {
			return fmt.Errorf("no time in %+v", q)
		}
		want := service.Quarantine{Name: "10.200.0.1-8080.default.web", Addr: netip.MustParseAddr("10.200.0.1"), Port: 8080,
			Service: service.ID{Namespace: "default", Name: "web"}, Reason: "disk errors", By: "alice", Since: q.Since}
		if q != want {
			return fmt.Errorf("got %+v, want %+v", q, want)
		}
		return nil
	})
	command(drain(one), "10.200.0.1:8080 is drained already: kubectl get quarantine 10.200.0.1-8080.default.web")
	other := kubectl.Quarantine{Backend: "10.200.0.2"}
	command(drain(other), "10.200.0.2 is the last backend that takes new flows of Service default/web: start another, or drain it with --force")
	command(undrain(other), "10.200.0.2 is not drained: there is no Quarantine 10.200.0.2")
	command(undrain(kubectl.Quarantine{Backend: "10.200.0.1"}), "10.200.0.1 is drained by the Quarantine 10.200.0.1-8080.default.web: fairlead undrain --backend 10.200.0.1:8080 --service default/web")
	command(undrain(one), "<nil>")
	r.follower.await(func() error {
		if n := len(r.follower.snapshot.Quarantines); n != 0 {
			return fmt.Errorf("%d quarantines, want none", n)
		}
		return nil
	})
	if want := "gets no new flows on any node"; !strings.Contains(out.String(), want) {
		r.t.Errorf("printed %q, without %q", out.String(), want)
	}
	r.deleteSlice("web-1")
}
