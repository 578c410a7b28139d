package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/agent/ui"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { labkube.Main(m) }

// kubelet executes "fairlead connect" in the pod of an agent, as kubelet would.
type kubelet struct{ agent net.Addr }

func (k kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	words := append([]string{r.URL.Path}, r.URL.Query()["command"]...)
	if got := strings.Join(words, " "); got != "/exec/fairlead/agent-n1/agent /fairlead connect" {
		http.Error(w, "unexpected: "+got, http.StatusBadRequest)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	type arrived struct {
		httpstream.Stream
		replied <-chan struct{}
	}
	arriving := make(chan arrived, 4)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		arriving <- arrived{s, replied}
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for range 4 {
		s := <-arriving
		<-s.replied
		streams[s.Headers().Get(corev1.StreamType)] = s
	}
	agent, err := net.Dial(k.agent.Network(), k.agent.String())
	if err != nil {
		return
	}
	defer agent.Close()
	go func() {
		_, _ = io.Copy(agent, streams[corev1.StreamTypeStdin])
		agent.Close()
	}()
	_, _ = io.Copy(streams[corev1.StreamTypeStdout], agent)
	_ = json.NewEncoder(streams[corev1.StreamTypeError]).Encode(metav1.Status{Status: metav1.StatusSuccess})
}

// TestUIThroughAPIServer serves the page of two agents, whose nodes only a real API server
// reaches: one answers, the kubelet of the other does not.
func TestUIThroughAPIServer(t *testing.T) {
	c := labkube.Start(t, labkube.Options{Flags: []string{"--kubelet-certificate-authority="}})
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != status.Path {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(status.Status{Node: "n1", Version: "v1", Time: time.Now()})
	}))
	defer agent.Close()
	node := httptest.NewTLSServer(kubelet{agent.Listener.Addr()})
	defer node.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fairlead"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runAgent(t, client, "n1", node.Listener.Addr())
	runAgent(t, client, "n2", gone.Addr())

	var out testkit.Output
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- ServeUI(ctx, Config{Kubeconfig: c.Kubeconfig, Namespace: "fairlead", Selector: DefaultSelector},
			ui.Options{Listen: "127.0.0.1:0", Timeout: 10 * time.Second}, &out)
	}()
	var answer struct {
		Agents []struct {
			Name, Error string
			Status      status.Status
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if wrong := fetch(strings.TrimSpace(out.String())+"/api/agents", &answer); wrong == nil {
			break
		} else if time.Now().After(end) {
			t.Fatalf("no answer: %v; %s", wrong, &out)
		}
	}
	if len(answer.Agents) != 2 {
		t.Fatalf("agents: %+v", answer.Agents)
	}
	if a := answer.Agents[0]; a.Name != "n1" || a.Error != "" || a.Status.Node != "n1" || a.Status.Version != "v1" {
		t.Errorf("the first: %+v", a)
	}
	if a := answer.Agents[1]; a.Name != "n2" || !strings.Contains(a.Error, "connection refused") {
		t.Errorf("the second: %s: %q", a.Name, a.Error)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// fetch reads JSON.
func fetch(url string, into any) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// runAgent creates a Node whose kubelet has an address, and the pod of an agent on it.
func runAgent(t *testing.T, client kubernetes.Interface, name string, kubelet net.Addr) {
	t.Helper()
	core := client.CoreV1()
	n, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		at := kubelet.(*net.TCPAddr)
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.IP.String()}}
		n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at.Port)
		_, err = core.Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + name, Labels: map[string]string{"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/component": "agent"}},
		Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: container, Image: "fairlead"}}},
	}
	p, err = core.Pods("fairlead").Create(t.Context(), p, metav1.CreateOptions{})
	if err == nil {
		p.Status.Phase = corev1.PodRunning
		_, err = core.Pods("fairlead").UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
