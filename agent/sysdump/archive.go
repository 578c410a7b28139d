// Package sysdump is what a node, or a cluster, hands over to someone who looks for a fault: an
// archive of limited size without secrets, and on top of it a summary that names findings with
// their causes and fixes. It derives findings from what was collected (agent/sysdump/gather),
// and collects nothing itself. Tests need no agent.
package sysdump

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/limit"
)

// Names of files at the top of an archive.
const (
	SummaryFile  = "summary.txt"
	FindingsFile = "findings.json"
)

// DefaultMaxSize is the size in bytes up to which an archive grows.
const DefaultMaxSize = 64 << 20

// Archive collects files, compressed, up to a size.
type Archive struct {
	// Root is the folder of all files, Time their time.
	Root string
	Time time.Time
	max  int64
	size int64
	// members are gzip members, which can be written one after the other.
	members [][]byte
	// Left names files that did not fit, and what could not be collected, with the reason.
	Left []string
}

// NewArchive returns an empty archive. Something of the size is left for the summary.
func NewArchive(root string, now time.Time, max int64) *Archive {
	return &Archive{Root: root, Time: now, max: max - max/16}
}

// Miss notes that something could not be collected.
func (a *Archive) Miss(name string, err error) {
	a.Left = append(a.Left, fmt.Sprintf("%s: %v", name, err))
}

// Add adds a file unless the archive would become too large.
func (a *Archive) Add(name string, text []byte) {
	m, err := a.member(name, text)
	if err == nil && a.size+int64(len(m)) > a.max {
		err = fmt.Errorf("%d bytes do not fit (--max-size)", len(m))
	}
	if err != nil {
		a.Miss(name, err)
		return
	}
	a.size += int64(len(m))
	a.members = append(a.members, m)
}

// member compresses one file with its header.
func (a *Archive) member(name string, text []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	err := t.WriteHeader(&tar.Header{Name: path.Join(a.Root, name), Mode: 0o600, Size: int64(len(text)), ModTime: a.Time})
	if err == nil {
		_, err = t.Write(text)
	}
	err = errors.Join(err, t.Flush(), z.Close())
	return b.Bytes(), err
}

// write writes the archive, with the summary and the findings first.
func (a *Archive) write(w io.Writer, summary, findings []byte) error {
	end := &bytes.Buffer{}
	z := gzip.NewWriter(end)
	err := errors.Join(tar.NewWriter(z).Close(), z.Close())
	first, err2 := a.member(SummaryFile, summary)
	second, err3 := a.member(FindingsFile, findings)
	err = errors.Join(err, err2, err3)
	for _, m := range slices.Concat([][]byte{first, second}, a.members, [][]byte{end.Bytes()}) {
		if err == nil {
			_, err = w.Write(m)
		}
	}
	return err
}

// maxFile limits a file that is read back.
const maxFile = limit.Answer

// Each calls f for each file of an archive.
func Each(r io.Reader, f func(name string, text []byte) error) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("not a sysdump: %w", err)
	}
	t := tar.NewReader(z)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not a complete sysdump: %w", err)
		}
		text, err := limit.ReadAll(t, h.Name, maxFile)
		if err != nil {
			return err
		}
		if err := f(h.Name, text); err != nil {
			return err
		}
	}
}
