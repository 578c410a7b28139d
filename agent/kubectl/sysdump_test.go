package kubectl

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/agent/sysdump"
)

// apiServer answers everything with a password in it, except for one list.
type apiServer struct{}

func (apiServer) get(_ context.Context, path string, params map[string]string) ([]byte, error) {
	switch {
	case strings.HasSuffix(path, "/gateways"):
		return nil, errors.New("the server could not find the requested resource")
	case strings.HasSuffix(path, "/services"):
		return []byte(`{"metadata":{"continue":"x"},"items":[]}`), nil
	case strings.HasSuffix(path, "/log") && params["previous"] == "true":
		return nil, errors.New("previous terminated container not found")
	case strings.HasSuffix(path, "/log") && params["container"] == "chatty":
		return []byte(strings.Repeat("x", mostLog)), nil
	case strings.HasSuffix(path, "/log"):
		return []byte("log of " + params["container"] + ", password=hunter2"), nil
	}
	return []byte(`{"items":[{"password":"hunter2"}]}`), nil
}

func (apiServer) pods(context.Context, string) ([]corev1.Pod, error) {
	return []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "agent-x"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent"}, {Name: "chatty"}}}}}, nil
}

// TestSysdump makes one archive of two nodes' dumps and of the cluster, without secrets, and
// names the node that failed.
func TestSysdump(t *testing.T) {
	q := nodes(func(_ context.Context, p corev1.Pod, args []string, out io.Writer) error {
		switch {
		case p.Spec.NodeName == "n3":
			return errors.New("exit code 1")
		case args[0] == "status":
			_, err := io.WriteString(out, `{"version":"v1","time":"2026-01-01T00:00:00Z"}`)
			return err
		}
		a := sysdump.NewArchive("sysdump-"+p.Spec.NodeName, time.Now(), sysdump.DefaultMaxSize)
		a.Add("agent/status.json", []byte("{}"))
		return sysdump.Write(out, a, []byte("of one node"), nil)
	}, "n1", "n2", "n3")
	q.Namespace = "fairlead"
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	var out bytes.Buffer
	if err := q.sysdump(t.Context(), apiServer{}, []string{"--file", file}, &out); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	texts := map[string]string{}
	err = sysdump.Each(archive, func(name string, text []byte) error {
		texts[strings.TrimPrefix(name, "sysdump-cluster/")] = string(text)
		if strings.Contains(string(text), "hunter2") {
			t.Errorf("%s: %s", name, text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1/agent/status.json", "n2/summary.txt", "cluster/pods.json", "cluster/quarantines.json", "cluster/nodereports.json", "cluster/bgpsessions.json", "cluster/services.json", "cluster/logs/agent-x-agent.txt", "cluster/logs/agent-x-chatty.txt"} {
		if texts[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	if strings.Contains(out.String(), "previous") {
		t.Errorf("a container has no predecessor, as most:\n%s", &out)
	}
	for _, want := range []string{"verdict: 1 of 3 nodes did not answer", "n3: agent: does not answer: node n3: exit code 1", "cluster/gateways.json: the server could not find",
		"cluster/services.json: only the first 2000 are here", "cluster/logs/agent-x-chatty.txt: only the first 4 MiB are here", "n3: node n3: exit code 1"} {
		if !strings.Contains(out.String(), want) || !strings.Contains(texts["summary.txt"], want) {
			t.Errorf("%s\nlacks %q", &out, want)
		}
	}
}
