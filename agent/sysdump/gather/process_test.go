package gather

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Secrets are looked for in the files that flags name, wherever the flags are.
func TestFlags(t *testing.T) {
	want := map[string][]string{"peer-password-file": {"/etc/fairlead/bgp"}, "manifest-dir": {"/a", "/b"}, "metrics": {"true"}}
	for name, got := range map[string]map[string][]string{
		"command line": flagsOf([]string{"fairlead", "agent", "--peer-password-file", "/etc/fairlead/bgp", "--manifest-dir=/a", "--manifest-dir=/b", "--metrics=true"}),
		"file":         flagsInFile([]byte("peer-password-file: /etc/fairlead/bgp\nmanifest-dir: [/a, /b]\nmetrics: true\n")),
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
