package labcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindsTheProduct checks that the binary next to this program takes precedence over
// $PATH, and that --fairlead overrides both.
func TestFindsTheProduct(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	if got, err := (&Product{}).Find(); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("%q, %v: want an error with the fix", got, err)
	}
	place := func(dir string) string {
		path := filepath.Join(dir, "fairlead")
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	expect := func(p Product, want string) {
		t.Helper()
		if got, err := p.Find(); err != nil || got != want {
			t.Errorf("%+v: %q, %v, want %q", p, got, err, want)
		}
	}
	expect(Product{}, place(os.Getenv("PATH")))
	next := place(filepath.Dir(self))
	t.Cleanup(func() { os.Remove(next) })
	expect(Product{}, next)
	other := place(t.TempDir())
	expect(Product{Path: other}, other)
	if got, err := (&Product{Path: other + "x"}).Find(); err == nil || !strings.Contains(err.Error(), "--fairlead") {
		t.Errorf("%q, %v: want an error that names the flag", got, err)
	}
}
