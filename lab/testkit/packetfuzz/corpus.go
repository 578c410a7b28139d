package packetfuzz

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/atomicfile"
)

// LoadCorpus reads a file written by SaveCorpus, or returns nothing if there is no such
// file.
func LoadCorpus(path string, hooks []string) ([]*Case, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	text, err := io.ReadAll(bufio.NewReader(z))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all []*Case
	for _, one := range strings.SplitAfter(string(text), "\n\n") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		c, err := ParseCase(one, hooks)
		if err != nil {
			return nil, fmt.Errorf("%s: case %d: %w", path, len(all)+1, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// SaveCorpus atomically replaces a file by one with these cases.
func SaveCorpus(path string, hooks []string, all []*Case) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	for _, c := range all {
		fmt.Fprintf(z, "%s\n", c.Text(hooks))
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, 0o644, &b)
}

// Reduce returns a small subset of the cases that covers the same as all: the smallest
// first, each of which covers something that those before it do not.
func Reduce(t Target, all []*Case) ([]*Case, error) {
	e := NewEngine(t, nil, NewStats(t.Name()))
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *Case) int {
		return cmp.Or(cmp.Compare(a.World, b.World), cmp.Compare(a.bytes(), b.bytes()))
	})
	var few []*Case
	err := e.inTurn(all, func(c *Case) {
		if e.news() {
			few = append(few, c)
		}
	})
	return few, err
}

// inTurn runs cases one after the other, and enters each world once for adjacent cases.
// The error is that of the first case that violates the model: a *Failure.
func (e *Engine) inTurn(all []*Case, done func(*Case)) (err error) {
	for i, c := range all {
		if i > 0 && all[i-1].World == c.World {
			e.work.Set(c)
			err = e.execute()
		} else {
			err = e.Execute(c)
		}
		if err != nil {
			return &Failure{Case: c, Why: err}
		}
		done(c)
	}
	return nil
}

// bytes is the size of a case.
func (c *Case) bytes() (n int) {
	for i := range c.Steps {
		n += 16 + len(c.Steps[i].Frame)
	}
	return n
}

// Replay runs cases, which are grouped by world, and returns how many blocks they reach.
// The error is that of the first case that violates the model.
func Replay(t Target, all []*Case) (blocks int, err error) {
	e := NewEngine(t, nil, NewStats(t.Name()))
	err = e.inTurn(all, func(*Case) { e.news() })
	return e.blocks, err
}
