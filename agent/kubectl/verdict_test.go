package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestVerdict begins the status of a cluster with what its nodes disagree about, also if one
// of them is older.
func TestVerdict(t *testing.T) {
	q := nodes(func(_ context.Context, p corev1.Pod, args []string, out io.Writer) error {
		node := p.Spec.NodeName
		if !slices.Contains(args, "json") {
			_, err := fmt.Fprintf(out, `[{"lines":["fairlead on %s"]}]`, node)
			return err
		}
		version := "v2"
		if node == "n3" {
			if version = "v1"; slices.Contains(args, "--tables") {
				return errors.New("exit code 2")
			}
		}
		_, err := fmt.Fprintf(out, `{"node":%q,"version":%q,"time":"%s"}`, node, version, "2026-01-01T00:00:00Z")
		return err
	}, "n1", "n2", "n3")
	var out bytes.Buffer
	if err := q.print(t.Context(), []string{"status"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"verdict: 1 of 3 nodes disagree (differences: 1)\n  n3: release: v1, others: v2", "\nn1: fairlead on n1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nlacks %q", &out, want)
		}
	}
	out.Reset()
	if err := q.print(t.Context(), []string{"get", "services"}, &out); err != nil || strings.Contains(out.String(), "verdict") {
		t.Errorf("%s, %v", &out, err)
	}
}
