// Package listing parses lists of an API server while they arrive.
package listing

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A list consists of four magic bytes and a runtime.Unknown, which contains a message such
// as ServiceList (apimachinery's generated.proto). These are their field numbers; all of
// them are length-delimited.
const (
	magic       = "k8s\x00"
	unknownRaw  = 2 // runtime.Unknown
	listMeta    = 1 // ServiceList, EndpointSliceList, NodeList
	listItem    = 2
	maxItem     = 64 << 20 // bytes; etcd limits objects to a few megabytes
	bufferBytes = 64 << 10
)

// Read parses a protobuf list item by item as it arrives from the API server, so that neither
// its text nor its objects are ever in memory in full. item must not retain its argument.
func Read(from io.Reader, item func(text []byte) error) (meta metav1.ListMeta, err error) {
	r := &reader{r: bufio.NewReaderSize(from, bufferBytes)}
	begin, err := r.take(uint64(len(magic)))
	if err == nil && string(begin) != magic {
		err = fmt.Errorf("it begins with %q", begin)
	}
	found := false
	if err == nil {
		err = r.fields(math.MaxInt64, func(number, size uint64) error {
			if number != unknownRaw {
				return r.skip(size)
			}
			found = true
			return r.items(size, &meta, item)
		})
	}
	if err == nil && !found {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return meta, fmt.Errorf("what came is no whole list of Kubernetes: %w", err)
	}
	return meta, nil
}

// reader parses protobuf messages in which all fields are length-delimited.
type reader struct {
	r    *bufio.Reader
	read uint64
	buf  []byte
}

// ReadByte counts the bytes read, for encoding/binary.
func (l *reader) ReadByte() (byte, error) {
	b, err := l.r.ReadByte()
	if err == nil {
		l.read++
	}
	return b, err
}

// fields parses the fields of a message of a given size; each reads, or skips, one. A
// message of unknown size ends with the text.
func (l *reader) fields(size uint64, each func(number, size uint64) error) error {
	for end := l.read + size; l.read < end; {
		tag, err := binary.ReadUvarint(l)
		if errors.Is(err, io.EOF) && size == math.MaxInt64 {
			return nil
		}
		if err != nil {
			return whole(err)
		}
		n, err := binary.ReadUvarint(l)
		switch {
		case err != nil:
			return whole(err)
		case tag&7 != 2:
			return fmt.Errorf("field %d has no length", tag>>3)
		case l.read > end || n > end-l.read:
			return fmt.Errorf("field %d is longer than what it stands in", tag>>3)
		}
		if err := each(tag>>3, n); err != nil {
			return err
		}
	}
	return nil
}

// whole converts a premature end of the input to io.ErrUnexpectedEOF.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (l *reader) items(size uint64, meta *metav1.ListMeta, item func([]byte) error) error {
	return l.fields(size, func(number, size uint64) error {
		if number != listMeta && number != listItem {
			return l.skip(size)
		}
		text, err := l.take(size)
		if err == nil && number == listMeta {
			err = meta.Unmarshal(text)
		} else if err == nil {
			err = item(text)
		}
		return err
	})
}

// take reads n bytes, which are valid until the next call.
func (l *reader) take(n uint64) ([]byte, error) {
	if n > maxItem {
		return nil, fmt.Errorf("an item of %d bytes; no more than %d are read", n, maxItem)
	}
	if uint64(cap(l.buf)) < n {
		l.buf = make([]byte, n)
	}
	k, err := io.ReadFull(l.r, l.buf[:n])
	l.read += uint64(k)
	return l.buf[:n], whole(err)
}

func (l *reader) skip(n uint64) error {
	k, err := io.CopyN(io.Discard, l.r, int64(n))
	l.read += uint64(k)
	return whole(err)
}
