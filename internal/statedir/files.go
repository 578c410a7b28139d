package statedir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fairlead/fairlead/internal/atomicfile"
)

// Files is the set of values of one kind in a Dir, one file per value.
type Files struct {
	dir     *Dir // nil if no usable directory exists
	path    string
	version int
}

// Files returns the values of a kind in this format version. Files with another version are
// not read.
func (d *Dir) Files(kind string, version int) Files {
	if d == nil || d.lock == nil {
		return Files{}
	}
	return Files{d, filepath.Join(d.path, kind), version}
}

// envelope wraps each value.
type envelope struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Value   json.RawMessage `json:"value"`
}

// plain matches names that are used as file names unchanged.
var plain = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

// file returns the path for a name, which may be any text.
func (f Files) file(name string) string {
	if !plain.MatchString(name) {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:])
	}
	return filepath.Join(f.path, name+suffix)
}

// Read reads the value of a name, or returns fs.ErrNotExist. Other errors name the file,
// which stays unchanged until its value is written again.
func (f Files) Read(name string, into any) error {
	if f.dir == nil {
		return fs.ErrNotExist
	}
	return f.read(f.file(name), into)
}

// read reads the value in a file.
func (f Files) read(file string, into any) error {
	text, err := f.dir.peek(file)
	if err != nil {
		return err
	}
	if err := f.open(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// open checks the envelope and decodes the value in it.
func (f Files) open(text []byte, into any) error {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("is damaged: %w", err)
	}
	if e.Version != f.version {
		return fmt.Errorf("has version %d, and this release reads version %d", e.Version, f.version)
	}
	if sum := sha256.Sum256(e.Value); hex.EncodeToString(sum[:]) != e.SHA256 {
		return errors.New("is damaged: its checksum does not match")
	}
	if err := json.Unmarshal(e.Value, into); err != nil {
		return fmt.Errorf("is damaged: %w", err)
	}
	return nil
}

// Write schedules the value of a name to be written. The last of several writes wins. The
// value must not be modified afterwards.
func (f Files) Write(name string, value any) {
	if f.dir == nil {
		return
	}
	file := f.file(name)
	f.dir.put(file, &pending{func() ([]byte, error) {
		text, err := f.seal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return text, nil
	}})
}

// seal encodes a value and wraps it in an envelope.
func (f Files) seal(value any) ([]byte, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if len(body) > maxFile/2 {
		return nil, fmt.Errorf("%d bytes are more than the %d that are persisted", len(body), maxFile/2)
	}
	sum := sha256.Sum256(body)
	return json.Marshal(envelope{f.version, hex.EncodeToString(sum[:]), body})
}

// Remove schedules the value of a name to be removed.
func (f Files) Remove(name string) {
	if f.dir != nil {
		f.dir.put(f.file(name), &pending{})
	}
}

// Keep removes all values except those with these names.
func (f Files) Keep(names []string) {
	if f.dir == nil {
		return
	}
	keep := map[string]bool{}
	for _, n := range names {
		keep[f.file(n)] = true
	}
	for _, file := range f.list() {
		if !keep[file] {
			f.dir.put(file, &pending{})
		}
	}
}

// All returns every readable value, and the errors for the others.
func All[T any](f Files) (values []T, errs []error) {
	for _, file := range f.list() {
		var v T
		if err := f.read(file, &v); err != nil {
			errs = append(errs, err)
			continue
		}
		values = append(values, v)
	}
	return values, errs
}

// list returns the existing files, sorted.
func (f Files) list() (files []string) {
	if f.dir == nil {
		return nil
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil // nothing has been written yet
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			files = append(files, filepath.Join(f.path, e.Name()))
		}
	}
	return files
}

// replace writes text to a file unless the content is the same; nil removes the file.
func replace(file string, text []byte) error {
	if text == nil {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if was, err := os.ReadFile(file); err == nil && bytes.Equal(was, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(file, 0o600, bytes.NewReader(text))
}
