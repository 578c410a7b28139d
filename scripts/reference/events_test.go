package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/event"
)

// events describes the Events that controllers create; those of agents are event.Types.
var events = []struct{ reason, object, kind, meaning string }{
	{"Assigned", "Service", "Normal", "the Service has the addresses that it requests ([addresses](../addresses.md))"},
	{"PoolExhausted", "Service", "Warning", "the pools that the Service may use have no free address; it gets the next one that becomes free"},
	{"NoMatchingPool", "Service", "Warning", "there is no pool that the Service may use"},
	{"NotInPool", "Service", "Warning", "the requested address is in no pool that the Service may use"},
	{"AddressConflict", "Service", "Warning", "another Service has the requested address, or a port at it"},
	{"IPFamilyMismatch", "Service", "Warning", "the requested address is of none of the Service's IP families, or a required family has no requested address"},
	{"InvalidAnnotation", "Service", "Warning", "an annotation is invalid; the note names it"},
	{"AddressOutsidePools", "Service", "Warning", "the Service keeps an address that is no longer in any pool"},
	{"PoolNotAllowed", "Service", "Warning", "the Service keeps an address of a pool that it may no longer use"},
	{"PortOverlap", "Service", "Warning", "the Service shares an address, and one of its ports overlaps with that of another Service"},
	{"Ready", "AddressPool", "Normal", "addresses of the pool are assigned, after a problem was fixed"},
	{"InvalidSpec", "AddressPool", "Warning", "the pool is rejected; the note names the field"},
	{"OverlapsNodeAddress", "AddressPool", "Warning", "the pool contains addresses of nodes, which are not assigned"},
	{"AttachmentReleased", "Pod", "Warning", "the pod of a lease no longer exists; its addresses on the virtual network are free"},
}

const eventsIntro = `# Events

## The journal of an agent

Each agent records what changes, with time, object, states before and after, and cause. ` + "`fairlead get events`" + ` lists it, ` + "`kubectl fairlead get events`" + ` that of all nodes:

` + "```sh" + `
fairlead get events --since 1h
fairlead get events --service default/web
fairlead get events --type PeerDown,BFDDown -w
` + "```" + `

- An event that recurs within 10 minutes is listed once, with its count and its latest cause. If more than 200 events of a type occur within 10 seconds, the others are only counted.
- The journal has at most 4096 events and 1 MiB; one type takes at most a quarter of it. The oldest events are removed first.
- It is stored in ` + "`events.jsonl`" + ` in the state directory (` + "`--state-dir`" + `, by default ` + "`SOCKET.state`" + `), once per second, and survives a restart. If it cannot be written, the status says why, and events are kept in memory.
- Programs read a stream from the socket of the agent: ` + "`GET /v1/events?follow=true`" + ` answers with one JSON object per line. An event that recurs is sent again with the same ` + "`id`" + `. Up to 16 readers may follow; one that lags by more than 1024 events, or does not read for 5 seconds, is disconnected.

Types are stable; causes are not.

`

const clusterIntro = `
Those marked *in the cluster* are also created as Kubernetes Events, at a limited rate: of the object if it is a Service, Gateway, Advertisement, BGPPeer or AddressPool, of the Services of a backend, and otherwise of the Node. Agents that are no load balancers create Events of their Node only.

## Events of controllers

` + "`kubectl describe`" + ` shows Kubernetes Events at their object, and ` + "`kubectl get events --field-selector reason=PoolExhausted`" + ` lists those with a reason. Reasons are stable; notes are not.

`

// reasonsIn are the files whose reasons are those of Events.
var reasonsIn = []string{
	"controller/pools.go", "controller/reconcile.go",
	"core/addresspool/assign.go", "vdn/kube/gone.go",
}

// TestEvents: docs/reference/events.md lists the reasons of all Events.
func TestEvents(t *testing.T) {
	var b strings.Builder
	b.WriteString(eventsIntro)
	b.WriteString(header("type", "object", "severity", "in the cluster", "meaning"))
	for _, d := range event.Types {
		b.WriteString(row(code(string(d.Type)), d.Kind, string(d.Severity), map[bool]string{true: "yes", false: ""}[d.Action != ""], d.Meaning))
	}
	b.WriteString(clusterIntro)
	b.WriteString(header("reason", "object", "type", "meaning"))
	var described []string
	for _, e := range events {
		b.WriteString(row(code(e.reason), e.object, e.kind, e.meaning))
		described = append(described, e.reason)
	}
	compare(t, "events.md", b.String())

	slices.Sort(described)
	if used := slices.Sorted(maps.Keys(usedReasons(t))); !slices.Equal(used, described) {
		t.Errorf("the code has the reasons\n%q\nand the page\n%q", used, described)
	}
	for _, file := range recording(t) {
		if !slices.Contains(reasonsIn, file) {
			t.Errorf("%s records Events: add it to reasonsIn", file)
		}
	}
}

// TestEveryTypeOfEventIsTested: a test outside core/event expects each type.
func TestEveryTypeOfEventIsTested(t *testing.T) {
	missing := map[event.Type]bool{}
	for _, d := range event.Types {
		missing[d.Type] = true
	}
	for _, dir := range []string{"advertise", "agent", "cmd", "lab", "reconciler"} {
		err := filepath.WalkDir(filepath.Join(repository, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") && filepath.Ext(path) != ".txtar" {
				return err
			}
			text, err := os.ReadFile(path)
			for of := range missing {
				if strings.Contains(string(text), string(of)) {
					delete(missing, of)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for of := range missing {
		t.Errorf("no test expects %s", of)
	}
}

// usedReasons returns the values of fields and constants named Reason.
func usedReasons(t *testing.T) map[string]bool {
	all := map[string]bool{}
	use := func(name string, value ast.Expr) {
		if text, ok := value.(*ast.BasicLit); ok && text.Kind == token.STRING && strings.Contains(name, "Reason") {
			reason, _ := strconv.Unquote(text.Value)
			all[reason] = true
		}
	}
	for _, path := range reasonsIn {
		file, err := parser.ParseFile(fileset, filepath.Join(repository, path), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				use(types.ExprString(n.Key), n.Value)
			case *ast.AssignStmt:
				for i := range min(len(n.Lhs), len(n.Rhs)) {
					use(types.ExprString(n.Lhs[i]), n.Rhs[i])
				}
			case *ast.ValueSpec:
				for i := range n.Values {
					kind := ""
					if n.Type != nil {
						kind = types.ExprString(n.Type)
					}
					use(n.Names[i].Name+" "+kind, n.Values[i])
				}
			}
			return true
		})
	}
	return all
}

// recording returns the files that create Events, except for functions that are called to
// create one, and for post.go, which creates those of a journal.
func recording(t *testing.T) (all []string) {
	for _, dir := range []string{"cmd", "controller", "source", "vdn", "reconciler", "agent"} {
		err := filepath.WalkDir(filepath.Join(repository, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "event.go" || filepath.Base(path) == "post.go" {
				return err
			}
			rel, err := filepath.Rel(repository, path)
			text := string(read(t, rel))
			if strings.Contains(text, "kube.Event{") || strings.Contains(text, "kubeclient.Event{") || strings.Contains(text, ".recordEvent(") {
				all = append(all, rel)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
