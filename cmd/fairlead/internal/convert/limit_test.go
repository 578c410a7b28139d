package convert

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/limit"
)

// sparse creates a file of a size that takes no space on disk.
func sparse(t *testing.T, name string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantTooLong(t *testing.T, what string, err error) {
	t.Helper()
	var long *limit.TooLong
	if !errors.As(err, &long) || !strings.Contains(err.Error(), what) {
		t.Errorf("%s: error %v, want one that names it and the limit", what, err)
	}
}

// The input of commands is limited.
func TestInputIsBounded(t *testing.T) {
	path := sparse(t, "long.yaml", limit.Text+1)
	_, _, err := readInput(&cobra.Command{}, path)
	wantTooLong(t, path, err)
	_, err = includeFiles("/etc/keepalived.conf", path)
	wantTooLong(t, path, err)
	dir := filepath.Dir(sparse(t, "a.conf", limit.Text/2+1))
	if err := os.Link(filepath.Join(dir, "a.conf"), filepath.Join(dir, "b.conf")); err != nil {
		t.Fatal(err)
	}
	_, err = includeFiles("/etc/keepalived.conf", filepath.Join(dir, "*.conf"))
	wantTooLong(t, "b.conf", err)

	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := &cobra.Command{}
	cmd.SetIn(file)
	_, _, err = readInput(cmd, "-")
	wantTooLong(t, "stdin", err)
}
