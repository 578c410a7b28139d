// Package audit logs who changed what and which requests were denied, as one JSON object
// per line in files of bounded size. The log contains no secrets: it records only the
// method and the path of a request.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/shorten"
)

// Record is one line of the log.
type Record struct {
	Time time.Time `json:"time"`
	// Controller is the controller that received the request.
	Controller string `json:"controller"`
	// Who is the name of the token, Role its role; both are empty if the client is unknown.
	Who  string `json:"who"`
	Role string `json:"role"`
	// From is the client's address; empty for a Unix socket.
	From   string `json:"from,omitempty"`
	Method string `json:"method"`
	Path   string `json:"path"`
	// Object is the object of the request, as errors name it.
	Object string `json:"object,omitempty"`
	// Result is "ok", "denied" or "failed"; Status is the HTTP status, Error the message.
	Result string `json:"result"`
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
}

// Log limits: Kept old files in addition to the current one, each at most Size.
const (
	Size = 10 << 20 // bytes
	Kept = 5
)

// mostError limits the length of a logged error, in bytes.
const mostError = 500

// Log is an open audit log. A nil Log writes nothing.
type Log struct {
	path string // empty for standard output
	size int64
	kept int
	log  *slog.Logger

	mu      sync.Mutex
	out     io.WriteCloser
	written int64
	failing bool
}

// Open opens a log file and appends to it if it exists. "-" is standard output, which is
// not bounded.
func Open(path string, log *slog.Logger) (*Log, error) { return open(path, Size, Kept, log) }

func open(path string, size int64, kept int, log *slog.Logger) (*Log, error) {
	l := &Log{path: path, size: size, kept: kept, log: log}
	if path == "-" {
		l.path, l.out = "", os.Stdout
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return l, l.reopen()
}

func (l *Log) reopen() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("audit log: %w", err), f.Close())
	}
	l.out, l.written = f, info.Size()
	return nil
}

// Write writes one record. A write failure is reported in the ordinary log and does not
// stop the controller.
func (l *Log) Write(r Record) {
	if l == nil {
		return
	}
	r.Error = shorten.Text(r.Error, mostError)
	line, err := json.Marshal(r)
	if err != nil { // cannot happen for a Record
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.rotate(int64(len(line)) + 1)
	if err == nil {
		var n int
		n, err = l.out.Write(append(line, '\n'))
		l.written += int64(n)
	}
	if err != nil && !l.failing {
		l.log.Error("failed to write the audit log", "error", err)
	}
	l.failing = err != nil
}

// rotate starts a new file if the current one would become too long.
func (l *Log) rotate(more int64) error {
	if l.path == "" || l.written == 0 || l.written+more <= l.size {
		if l.out == nil {
			return l.reopen()
		}
		return nil
	}
	err := l.out.Close()
	for i := l.kept - 1; i >= 0; i-- {
		from := l.path
		if i > 0 {
			from = fmt.Sprintf("%s.%d", l.path, i)
		}
		if moved := os.Rename(from, fmt.Sprintf("%s.%d", l.path, i+1)); moved != nil && !errors.Is(moved, fs.ErrNotExist) {
			err = errors.Join(err, moved)
		}
	}
	l.out, l.written = nil, 0
	return errors.Join(err, l.reopen())
}

// Close closes the log.
func (l *Log) Close() error {
	if l == nil || l.path == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return nil
	}
	return l.out.Close()
}
