package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// events describes the Events that Fairlead creates.
var events = []struct{ reason, object, kind, meaning string }{
	{"DrainStarted", "Node", "Normal", "a drain began: the load balancer's routes ask routers to prefer other load balancers ([drain](../drain.md))"},
	{"RoutesWithdrawn", "Node", "Normal", "the draining load balancer has withdrawn its routes, and waits for its tracked flows to end"},
	{"DrainCompleted", "Node", "Normal", "the drain is complete, and no tracked flow was cut off"},
	{"DrainTimedOut", "Node", "Warning", "the drain is complete, and tracked flows were left at the end of `--drain-timeout`"},
	{"DrainDeferred", "Node", "Warning", "the load balancer should drain, and continues because it is the last active one"},
	{"DrainEnded", "Node", "Normal", "the load balancer is in service again"},
	{"Degraded", "Node", "Warning", "the kernel rejects an optional feature; the note names what is lost ([kernel features](../kernel-features.md))"},
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

// reasonsIn are the files whose reasons are those of Events.
var reasonsIn = []string{
	"cmd/fairlead/internal/agent/degraded.go", "cmd/fairlead/internal/agent/drain.go", "controller/pools.go", "controller/reconcile.go",
	"core/addresspool/assign.go", "vdn/kube/gone.go",
}

// TestEvents: docs/reference/events.md lists the reasons of all Events.
func TestEvents(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Kubernetes Events\n\nThis page lists the Events that Fairlead creates on a cluster. `kubectl describe` shows them at their object, and " +
		"`kubectl get events --field-selector reason=DrainDeferred` lists those with a reason. Reasons are stable; notes are not.\n\n")
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
// create one.
func recording(t *testing.T) (all []string) {
	for _, dir := range []string{"cmd", "controller", "source", "vdn", "reconciler", "agent"} {
		err := filepath.WalkDir(filepath.Join(repository, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "event.go" {
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
