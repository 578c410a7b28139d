package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// records reads all records of a file.
func records(t *testing.T, path string) (all []Record) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var r Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil || !utf8.Valid(s.Bytes()) {
			t.Fatalf("%s: %v", s.Bytes(), err)
		}
		all = append(all, r)
	}
	return all
}

// TestRotation checks that only the oldest records are lost, that files are bounded, and
// that an existing file is continued.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "below", "audit.log")
	const size, kept, lines = 2000, 3, 100
	next := 0
	for range 4 { // reopened repeatedly
		l, err := open(path, size, kept, slog.Default())
		if err != nil {
			t.Fatal(err)
		}
		for range lines / 4 {
			l.Write(Record{Who: "ops", Path: fmt.Sprint(next), Error: strings.Repeat("é", next%600)})
			next++
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != kept+1 {
		t.Errorf("%q, %v: want %d files", files, err, kept+1)
	}
	want := lines - 1
	for i := range kept + 1 {
		name := path
		if i > 0 {
			name = fmt.Sprintf("%s.%d", path, i)
		}
		if info, err := os.Stat(name); err != nil || info.Size() > size || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		all := records(t, name)
		for k := len(all) - 1; k >= 0; k-- {
			if all[k].Path != fmt.Sprint(want) {
				t.Fatalf("%s has %s, want %d", name, all[k].Path, want)
			}
			want--
		}
	}
}

// TestWhatCannotBeWritten checks that a write failure is reported once, and that writing
// resumes when it becomes possible.
func TestWhatCannotBeWritten(t *testing.T) {
	var logged bytes.Buffer
	l, err := open(filepath.Join(t.TempDir(), "audit.log"), 100, 1, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Write(Record{Path: "first"})
	good := l.path
	l.path = filepath.Join(t.TempDir(), "not", "there")
	for range 3 {
		l.Write(Record{Path: "lost"})
	}
	if n := strings.Count(logged.String(), "failed to write the audit log"); n != 1 {
		t.Errorf("logged %d times: %s", n, logged.String())
	}
	l.path = good
	l.Write(Record{Path: "second"})
	if all := records(t, good); len(all) != 2 || all[1].Path != "second" {
		t.Errorf("%+v", all)
	}
	var none *Log
	none.Write(Record{})
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}
