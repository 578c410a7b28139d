package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/internal/atomicfile"
)

// maxLine is more than the longest event, in bytes: longer lines are skipped.
const maxLine = 64 << 10

// maxID is the largest number that every JSON library reads exactly.
const maxID = 1<<53 - 1

// file appends events to a file, one JSON object per line. A line with the ID of an
// earlier one replaces it. Beyond a size, the file is replaced by one with what is still
// listed.
type file struct {
	path string // empty: nothing is stored
	most int64
	open *os.File
	size int64
}

// read restores what is stored. A line that cannot be read, such as a torn last one, is
// skipped.
func read(from io.Reader, restore func(event.Event)) error {
	lines := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		var e event.Event
		if !tooLong && len(bytes.TrimSpace(line)) > 0 && json.Unmarshal(line, &e) == nil && e.ID > 0 && e.ID <= maxID && e.Type != "" && !e.Time.IsZero() {
			restore(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// load restores the stored events, of at most 2*most bytes.
func (f *file) load(restore func(event.Event)) error {
	if f.path == "" {
		return nil
	}
	from, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	return read(io.LimitReader(from, 2*f.most), restore)
}

// append writes events, or replaces the file if it has become too large.
func (f *file) append(events []event.Event, all func() []event.Event) error {
	if f.path == "" || len(events) == 0 {
		return nil
	}
	if f.open == nil || f.size > f.most {
		return f.replace(all())
	}
	n, err := f.open.Write(lines(events))
	f.size += int64(n)
	if err != nil {
		err = errors.Join(err, f.close()) // the next call starts again
	}
	return err
}

// replace writes a file with these events, which replaces the former one.
func (f *file) replace(events []event.Event) error {
	err := f.close()
	text := lines(events)
	if err := errors.Join(err, atomicfile.Write(f.path, 0o600, bytes.NewReader(text))); err != nil {
		return err
	}
	f.size = int64(len(text))
	f.open, err = os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0o600)
	return err
}

func (f *file) close() error {
	if f.open == nil {
		return nil
	}
	err := f.open.Close()
	f.open = nil
	return err
}

// lines encodes events.
func lines(events []event.Event) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for i := range events {
		_ = enc.Encode(&events[i]) // an Event always has JSON
	}
	return b.Bytes()
}
