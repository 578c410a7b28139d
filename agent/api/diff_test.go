package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadManifests(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"folder/a.yaml", "folder/b.json", "folder/c.txt", "folder/.d.yaml", "other/a.yaml"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		paths []string
		files int
		whole bool
		fault string
	}{
		{[]string{"folder"}, 2, true, ""},
		{[]string{"folder/a.yaml", "folder/b.json"}, 2, false, ""},
		{[]string{"folder/a.yaml", "other/a.yaml"}, 0, false, "other/a.yaml: another file has the same name"},
		{[]string{"folder", "other/a.yaml"}, 0, false, "pass only this folder"},
		{[]string{"folder/c.txt"}, 0, false, "want a name that ends in"},
		{[]string{"nosuch"}, 0, false, "no such file"},
	} {
		var paths []string
		for _, p := range c.paths {
			paths = append(paths, filepath.Join(dir, p))
		}
		r, err := ReadManifests(paths)
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%v: %v, want %q", c.paths, err, c.fault)
		case c.fault == "" && (err != nil || len(r.Files) != c.files || r.Whole != c.whole):
			t.Errorf("%v: %+v, %v", c.paths, r, err)
		}
	}
}
