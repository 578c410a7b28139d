// Package limit limits how much is read of external data: files, standard input, responses.
// Data that is too long is an error that names it and the limit; nothing is truncated
// silently.
package limit

import (
	"fmt"
	"io"
	"os"
)

// Limits in bytes, by kind of data.
const (
	// Secret is for passwords, tokens and certificates.
	Secret = 1 << 20
	// Text is for configuration that a person or a program passes to a command.
	Text = 64 << 20
	// Answer is for the state of an entire cluster: a Status, a plan.
	Answer = 256 << 20
	// Item is for one value among others: a record of a stream, a short response.
	Item = 16 << 20
)

// TooLong is the error for data that is longer than its limit.
type TooLong struct {
	What string
	// Most is the limit in bytes.
	Most int64
}

func (e *TooLong) Error() string {
	return fmt.Sprintf("%s: longer than %d bytes, the most that is read", e.What, e.Most)
}

// Reader reads up to Most bytes of From, and returns a TooLong if there is more.
type Reader struct {
	From io.Reader
	What string
	Most int64
	read int64
}

// NewReader returns a Reader.
func NewReader(from io.Reader, what string, most int64) *Reader {
	return &Reader{From: from, What: what, Most: most}
}

// Renew permits another Most bytes, for the next value of a stream.
func (r *Reader) Renew() { r.read = 0 }

// Read implements io.Reader.
func (r *Reader) Read(b []byte) (int, error) {
	left := r.Most - r.read
	if left == 0 { // one more byte determines whether the data ends here
		n, err := r.From.Read(b[:min(len(b), 1)])
		if n > 0 {
			return 0, &TooLong{r.What, r.Most}
		}
		return 0, err
	}
	n, err := r.From.Read(b[:min(int64(len(b)), left)])
	r.read += int64(n)
	return n, err
}

// ReadAll reads everything, or returns a TooLong.
func ReadAll(from io.Reader, what string, most int64) ([]byte, error) {
	text, err := io.ReadAll(NewReader(from, what, most))
	if err != nil {
		return nil, err
	}
	return text, nil
}

// ReadFile is os.ReadFile with a limit, which also applies to endless devices and pipes.
func ReadFile(name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadAll(file, name, most)
}
