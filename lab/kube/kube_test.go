package kube_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
)

// victim is the environment variable that makes this test binary a program which runs a
// control plane until it is killed.
const victim = "KUBE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victim); dir != "" {
		os.Exit(runVictim(dir))
	}
	kube.Main(m)
}

func TestServes(t *testing.T) {
	c := kube.Start(t, kube.Options{Flags: []string{"--max-requests-inflight=321"}})
	api := clientOf(t, c.Config)
	if s := createService(t, api, "web"); !strings.HasPrefix(s.Spec.ClusterIP, "10.") {
		t.Errorf("the cluster address is %q", s.Spec.ClusterIP)
	}

	fromFile, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := services(clientOf(t, fromFile)).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("by the kubeconfig: %v", err)
	}

	unprivileged, err := c.ConfigFor("unprivileged", "unprivileged")
	if err != nil {
		t.Fatal(err)
	}
	_, err = services(clientOf(t, unprivileged)).Get(t.Context(), "web", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "unprivileged") {
		t.Errorf("a user without rights gets %v", err)
	}

	pid, err := c.APIServer.PID()
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); !strings.Contains(string(line), "321") {
		t.Errorf("Options.Flags are not in %q", line)
	}
}

// TestOutages uses writes, which no cache of the server can answer.
func TestOutages(t *testing.T) {
	c := kube.Start(t, kube.Options{EtcdRelay: true})
	api := clientOf(t, c.Config)
	write := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := api.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
		return err
	}
	var speedUp func() error
	for _, step := range []struct {
		what   string
		do     func() error
		writes bool
	}{
		{"stop", c.APIServer.Stop, false},
		{"stop what is stopped", c.APIServer.Stop, false},
		{"start", func() error { return c.APIServer.Start(t.Context()) }, true},
		{"pause", c.APIServer.Pause, false},
		{"resume", c.APIServer.Resume, true},
		{"pause etcd", c.Etcd.Pause, false},
		{"resume etcd", c.Etcd.Resume, true},
		{"slow etcd", func() error {
			speedUp = c.Etcd.Slow(20*time.Millisecond, 20*time.Millisecond)
			testkit.Eventually(t, time.Minute, func() error { return stands(c.Etcd) })
			return nil
		}, true},
		{"speed etcd up", func() error { return speedUp() }, true},
		{"a long way to etcd", func() error { return longWay(c.EtcdRelay, write) }, true},
		{"no way to etcd", func() error { c.EtcdRelay.Cut(true); return nil }, false},
		{"the way is back", func() error { c.EtcdRelay.Cut(false); return nil }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if step.writes {
			testkit.Eventually(t, time.Minute, write)
		} else if write() == nil {
			t.Errorf("%s: writes are still accepted", step.what)
		}
	}
	if err := c.APIServer.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "is already running") {
		t.Errorf("starting a running server: %v", err)
	}
}

// longWay delays the connection to etcd, and checks that a write takes at least as long.
func longWay(r *kube.Relay, write func() error) error {
	const way = 100 * time.Millisecond
	r.Delay(way)
	defer r.Delay(0)
	for end := time.Now().Add(time.Minute); ; {
		began := time.Now()
		err := write()
		switch took := time.Since(began); {
		case err == nil && took < 2*way:
			return fmt.Errorf("a write took %s, there and back are %s", took, 2*way)
		case err == nil || time.Now().After(end): // on a busy machine one may take too long
			return err
		}
	}
}

// stands returns nil if a program is stopped (proc_pid_stat(5)).
func stands(p *kube.Program) error {
	pid, err := p.PID()
	if err != nil {
		return err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && !strings.Contains(string(stat), ") T ") {
		err = fmt.Errorf("it runs: %s", stat)
	}
	return err
}

func TestCompact(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	api := clientOf(t, c.Config)
	old := createService(t, api, "web").ResourceVersion
	createService(t, api, "later")
	if err := c.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, err := services(api).Watch(t.Context(), metav1.ListOptions{ResourceVersion: old})
	if err == nil {
		defer w.Stop()
		err = apierrors.FromObject((<-w.ResultChan()).Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from before: %v, want 410 Gone", err)
	}
	_, err = services(api).List(t.Context(), metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a list of before: %v, want 410 Gone", err)
	}
}

// TestApply creates and changes objects, including one whose kind is defined at the same
// time.
func TestApply(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	const text = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
{apiVersion: example.org/v1, kind: Thing, metadata: {name: one}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {is: %s}}
`
	for _, want := range []string{"first", "second"} {
		if err := c.Apply(t.Context(), fmt.Sprintf(text, want)); err != nil {
			t.Fatal(err)
		}
		m, err := clientOf(t, c.Config).CoreV1().ConfigMaps("default").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil || m.Data["is"] != want {
			t.Errorf("the ConfigMap is %v (%v), want %q", m.Data, err, want)
		}
	}
	err := c.Apply(t.Context(), "{apiVersion: v1, kind: Service, metadata: {name: bad}, spec: {ports: [{port: 0}]}}")
	if err == nil || !strings.Contains(err.Error(), "Service bad") {
		t.Errorf("a Service without a port: %v", err)
	}
}

func TestErrorsSayWhatFailed(t *testing.T) {
	_, err := kube.New(t.Context(), t.TempDir(), kube.Options{Flags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver.log") || !strings.Contains(err.Error(), "--no-such-flag") {
		t.Errorf("%v, want the path and the contents of the log", err)
	}
	t.Setenv(kube.BinariesEnv, t.TempDir())
	_, err = kube.New(t.Context(), t.TempDir(), kube.Options{})
	if err == nil || !strings.Contains(err.Error(), kube.BinariesEnv) {
		t.Errorf("%v, want the name of the variable to set", err)
	}
	testkit.NoLeftovers(t)
}

// runVictim prints its programs' process IDs and waits.
func runVictim(dir string) int {
	c, err := kube.New(context.Background(), dir, kube.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	server, _ := c.APIServer.PID()
	etcd, _ := c.Etcd.PID()
	fmt.Println(server, etcd)
	select {}
}

func TestDiesWithItsStarter(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), victim+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	rest, _ := io.ReadAll(out)
	cmd.Wait()
	pids := strings.Fields(line)
	if err != nil || len(pids) != 2 {
		t.Fatalf("the victim prints %q %q (%v)", line, rest, err)
	}
	for _, text := range pids {
		if pid, err := strconv.Atoi(text); err != nil || pid <= 1 {
			t.Fatalf("process id %q", text)
		}
	}
	testkit.NoLeftovers(t)
}

func clientOf(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func services(api *kubernetes.Clientset) typedcorev1.ServiceInterface {
	return api.CoreV1().Services("default")
}

func createService(t *testing.T, api *kubernetes.Clientset, name string) *corev1.Service {
	t.Helper()
	s, err := services(api).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
