package kube

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/vdn"
)

// TestPodOf checks that the API server is queried only for valid pod names, because a lease
// may contain any owner.
func TestPodOf(t *testing.T) {
	for owner, want := range map[string]bool{
		"lab/db-0": true, "lab/a.b": true,
		"": false, "lab": false, "lab/": false, "/db-0": false, "Lab/db-0": false, "lab/DB_0": false, "lab/a/b": false, "../x": false, "lab/..": false,
	} {
		if _, _, ok := podOf(vdn.Attachment{Owner: owner}); ok != want {
			t.Errorf("%q is a pod: %v", owner, ok)
		}
	}
	long := strings.Repeat("a", 241) + "." + strings.Repeat("b", 11)
	if _, name, ok := podOf(vdn.Attachment{Owner: "lab/" + nameOf(vdn.Attachment{ID: "x.y"}, long)}); !ok || len(name) > 253 {
		t.Errorf("%q is no name", name)
	}
}
