package chain

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refuse"
)

// degraded makes the kernel of a node reject tracing programs and perf events. Its agent
// still balances and serves the node's own clients; the missing features are in its
// status and in Events of the Node.
func (w *world) degraded(t *testing.T) {
	vip := w.serving(t, "degraded", "s1")
	w.kill(t, "n1")
	t.Run("serves", func(t *testing.T) { w.servesDegraded(t, vip) })
	w.agent(t, "n1")
	w.routed(t, vip, "n1", "n2")
	w.drop(t, "degraded")
	w.routed(t, vip)
}

// servesDegraded is a separate test, so that its cgroup ends before the next one.
func (w *world) servesDegraded(t *testing.T, vip netip.Addr) {
	kubeconfig, err := w.KubeconfigFor("system:serviceaccount:fairlead:fairlead-agent")
	must(t, err)
	w.degradedAgent(t, "prog:tracing=EPERM helper:perf_event_output=EPERM", "agent", "--kubernetes", "--kubeconfig", kubeconfig, "--node", "n1",
		"--role", "balancer,proxy", "--bpffs", "/sys/fs/bpf/n1", "--socket", socket("n1"), "--cgroup", testkit.EnterCgroup(t), "--health-address", "")

	lost := []string{features.Capture, features.SocketIterator}
	testkit.Eventually(t, within, func() error {
		s, err := status.Fetch(t.Context(), socket("n1"))
		if err != nil {
			return err
		}
		var missing []string
		for _, d := range s.Degraded {
			missing = append(missing, d.Feature)
		}
		slices.Sort(missing)
		if !slices.Equal(missing, lost) || s.ServiceProxy == nil || !s.ServiceProxy.Synced {
			return fmt.Errorf("degraded: %v, want %v; service proxy: %+v", missing, lost, s.ServiceProxy)
		}
		return nil
	})
	w.answered(t, vip, "s1") // through the load balancer
	conn, err := w.lab.Host("n1").Dial(t.Context(), netip.Addr{}, netip.AddrPortFrom(w.clusterIP(t, "degraded"), 80))
	if err != nil {
		t.Fatalf("a client on the node: %v", err) // through the service proxy
	}
	conn.Close()
	testkit.Eventually(t, within, func() error { return w.degradedEvents(t, lost) })
	must(t, w.processes["n1"].Stop(within))
}

// degradedEvents requires an Event of n1 for each missing feature.
func (w *world) degradedEvents(t *testing.T, lost []string) error {
	all, err := w.api.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=n1,reason=Degraded"})
	if err != nil {
		return err
	}
	for _, feature := range lost {
		found := false
		for _, e := range all.Items {
			found = found || e.Type == "Warning" && strings.HasPrefix(e.Message, feature+" (")
		}
		if !found {
			return fmt.Errorf("no Event of Node n1 about %s among %d", feature, len(all.Items))
		}
	}
	return nil
}

// degradedAgent starts the agent of n1 with a kernel that rejects what rules name.
func (w *world) degradedAgent(t *testing.T, rules string, args ...string) {
	t.Helper()
	log, err := os.OpenFile(w.log("n1"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, err)
	defer log.Close()
	cmd := refuse.Command(rules, binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	w.processes["n1"], err = w.lab.Host("n1").Start(cmd)
	must(t, err)
}
