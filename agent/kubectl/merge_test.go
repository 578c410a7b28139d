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
	"time"

	corev1 "k8s.io/api/core/v1"
)

// nodes returns a query of running pods, one on each node.
func nodes(run runner, names ...string) query {
	q := query{Config: Config{Timeout: 200 * time.Millisecond}, run: run}
	for _, n := range names {
		p := corev1.Pod{}
		p.Spec.NodeName = n
		q.pods = append(q.pods, p)
	}
	return q
}

// TestOneTable merges the tables of nodes; a node that does not answer is an error that
// does not hide the others.
func TestOneTable(t *testing.T) {
	q := nodes(func(ctx context.Context, p corev1.Pod, args []string, out io.Writer) error {
		if !slices.Equal(args, []string{"get", "backends", "web", "-o", "sections-wide"}) {
			return fmt.Errorf("args %q", args)
		}
		switch p.Spec.NodeName {
		case "n1":
			fmt.Fprint(out, `[{"head":["BACKEND","NODE"],"rows":[["10.0.0.1:80","w1"]]}]`)
		case "n2":
			fmt.Fprint(out, `[{"lines":["draining"],"head":["BACKEND","NODE"],"rows":[["10.0.0.1:80","w1"],["10.0.0.2:80","w2"]]}]`)
		case "n3":
			<-ctx.Done()
			return ctx.Err()
		default:
			return errors.New("exit code 1")
		}
		return nil
	}, "n1", "n2", "n3", "n4")
	var out bytes.Buffer
	err := q.print(t.Context(), []string{"get", "backends", "-o", "wide", "web"}, &out)
	want := `n2: draining
NODE  BACKEND      BACKEND NODE
n1    10.0.0.1:80  w1
n2    10.0.0.1:80  w1
n2    10.0.0.2:80  w2
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
	if err == nil || !strings.Contains(err.Error(), "node n3: no answer within 200ms") || !strings.Contains(err.Error(), "node n4: exit code 1") {
		t.Errorf("error %v", err)
	}
}

func TestMergedJSON(t *testing.T) {
	q := nodes(func(_ context.Context, p corev1.Pod, args []string, out io.Writer) error {
		_, err := fmt.Fprintf(out, `["%s %s"]`, p.Spec.NodeName, strings.Join(args, " "))
		return err
	}, "n1", "n2")
	for _, args := range [][]string{{"get", "routes", "-ojson"}, {"get", "routes", "--output=json"}, {"get", "-o", "json", "routes"}} {
		var out bytes.Buffer
		if err := q.print(t.Context(), args, &out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(out.String()), ""); got != `{"n1":["n1getroutes-ojson"],"n2":["n2getroutes-ojson"]}` {
			t.Errorf("%v: %s", args, got)
		}
	}
}

// TestFollow prefixes each line of commands that are not merged, whole lines only.
func TestFollow(t *testing.T) {
	q := nodes(func(_ context.Context, p corev1.Pod, _ []string, out io.Writer) error {
		for _, part := range []string{"a", "b\nc", "\nd"} {
			if _, err := io.WriteString(out, part); err != nil {
				return err
			}
		}
		return nil
	}, "n1", "n2")
	var out bytes.Buffer
	for _, args := range [][]string{{"drops", "-f"}, {"get", "events", "-w"}} {
		out.Reset()
		if err := q.print(t.Context(), args, &out); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		slices.Sort(lines)
		if got := strings.Join(lines, ","); got != "n1: ab,n1: c,n1: d,n2: ab,n2: c,n2: d" {
			t.Errorf("%v: %s", args, got)
		}
	}
}

// TestWatch repeats a merged table, and ends with its context.
func TestWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	q := nodes(func(_ context.Context, _ corev1.Pod, args []string, out io.Writer) error {
		if calls++; calls == 3 {
			cancel()
		}
		if slices.Contains(args, "-w") || slices.Contains(args, "--watch=1ms") {
			return errors.New("pods must not watch")
		}
		_, err := io.WriteString(out, `[{"head":["A"],"rows":[["1"]]}]`)
		return err
	}, "n1")
	if err := q.print(ctx, []string{"status", "--watch=1ms"}, io.Discard); err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
