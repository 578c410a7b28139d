package statedir

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/testkit"
)

type value struct {
	Text string
	Data []byte
}

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d := Open(path, slog.New(slog.DiscardHandler))
	t.Cleanup(d.Close)
	return d
}

// TestOutlivesItsProcess checks that the next process can read what was written, under any
// name, and that other users cannot.
func TestOutlivesItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	names := []string{"web.yaml", "with space.yaml", "../up", strings.Repeat("x", 255), "ünï"}
	first := Open(path, slog.New(slog.DiscardHandler))
	for _, n := range names {
		first.Files("kind", 1).Write(n, value{"old", nil})
		first.Files("kind", 1).Write(n, value{n, []byte{0xff, 0}})
	}
	var v value
	if err := first.Files("kind", 1).Read(names[0], &v); err != nil || v.Text != names[0] {
		t.Errorf("what waits to be written is %+v, %v", v, err)
	}
	first.Close()

	second := open(t, path)
	for _, n := range names {
		if err := second.Files("kind", 1).Read(n, &v); err != nil || v.Text != n || string(v.Data) != "\xff\x00" {
			t.Errorf("%q is %+v, %v", n, v, err)
		}
	}
	if all, errs := All[value](second.Files("kind", 1)); len(all) != len(names) || errs != nil {
		t.Errorf("all are %v, %v", all, errs)
	}
	if err := second.Files("other", 1).Read(names[0], &v); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of another kind: %v", err)
	}
	err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		info, _ := e.Info()
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", p, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	second.Files("kind", 1).Keep(names[1:2])
	second.Files("kind", 1).Remove("never there")
	testkit.Eventually(t, time.Minute, func() error {
		if left, _ := All[value](second.Files("kind", 1)); len(left) != 1 {
			return errors.New("not removed yet")
		}
		return nil
	})
}

// TestDamaged checks that a damaged file is reported, and is valid again after its value is
// rewritten.
func TestDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(text string) string
		words  string
	}{
		"cut":             {func(s string) string { return s[:len(s)/2] }, "is damaged"},
		"empty":           {func(string) string { return "" }, "is damaged"},
		"a bit":           {func(s string) string { return strings.Replace(s, "hello", "hellp", 1) }, "checksum does not match"},
		"another version": {func(s string) string { return strings.Replace(s, `"version":1`, `"version":2`, 1) }, "version 2, and this release reads version 1"},
		"another form":    {func(s string) string { return s[:len(s)-1] + `,"value":{"Text":5}}` }, "is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			d := Open(path, slog.New(slog.DiscardHandler))
			d.Files("kind", 1).Write("x", value{"hello", nil})
			d.Close()
			file := filepath.Join(path, "kind", "x.json")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.change(string(text))), 0o600); err != nil {
				t.Fatal(err)
			}
			d = open(t, path)
			var v value
			if err := d.Files("kind", 1).Read("x", &v); err == nil || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v", err)
			}
			if all, errs := All[value](d.Files("kind", 1)); len(all) != 0 || len(errs) != 1 {
				t.Errorf("all are %v, %v", all, errs)
			}
			d.Files("kind", 1).Write("x", value{"again", nil})
			if err := d.Files("kind", 1).Read("x", &v); err != nil || v.Text != "again" {
				t.Errorf("written again: %+v, %v", v, err)
			}
		})
	}
}

// TestOneProcess checks that a directory locked by another process is not changed.
func TestOneProcess(t *testing.T) {
	path := t.TempDir()
	open(t, path)
	other := open(t, path)
	other.Files("kind", 1).Write("x", value{})
	if p := other.Problems(); len(p) != 1 || p[0].Error() != "another process uses it; give each its own" {
		t.Errorf("problems %v", p)
	}
	if _, err := os.Stat(filepath.Join(path, "kind")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it wrote: %v", err)
	}
}

// TestNotWritable checks that a failed write is reported until it succeeds.
func TestNotWritable(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p := open(t, filepath.Join(path, "file", "below")).Problems(); len(p) != 1 || !strings.Contains(p[0].Error(), "not a directory") {
		t.Errorf("problems %v", p)
	}
	d := open(t, path)
	if err := os.WriteFile(filepath.Join(path, "kind"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await := func(n int) {
		t.Helper()
		testkit.Eventually(t, time.Minute, func() error {
			if p := d.Problems(); len(p) != n {
				return errors.Join(append(p, errors.New("want another number of problems"))...)
			}
			return nil
		})
	}
	d.Files("kind", 1).Write("x", value{"1", nil})
	await(1)
	if err := os.Remove(filepath.Join(path, "kind")); err != nil {
		t.Fatal(err)
	}
	d.Files("kind", 1).Write("x", value{"2", nil})
	await(0)
	d.Files("kind", 1).Write("x", value{strings.Repeat("x", maxFile/2), nil})
	await(1)
	if p := d.Problems(); !strings.Contains(p[0].Error(), "are more than the") {
		t.Errorf("problems %v", p)
	}
	if _, err := os.Stat(filepath.Join(path, "kind", "x.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is out of date is still there: %v", err)
	}
}

// TestNone checks that a nil Dir stores nothing and reports no problems.
func TestNone(t *testing.T) {
	var d *Dir
	d.Files("kind", 1).Write("x", value{})
	d.Files("kind", 1).Keep(nil)
	d.Files("kind", 1).Remove("x")
	var v value
	if err := d.Files("kind", 1).Read("x", &v); !errors.Is(err, fs.ErrNotExist) || d.Problems() != nil || d.Path() != "" {
		t.Errorf("got %v, %v", err, d.Problems())
	}
	d.Close()
}
