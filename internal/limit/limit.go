// Package limit bounds how much is read of what others write: files, standard input,
// answers. What is longer is an error that names it and the limit; nothing is cut off
// silently.
package limit

import (
	"fmt"
	"io"
	"os"
)

// Limits in bytes, by what is read.
const (
	// Secret is for passwords, tokens and certificates.
	Secret = 1 << 20
	// Text is for configuration that a person or a program passes to a command.
	Text = 64 << 20
	// Answer is for what a whole cluster may be in: a Status, a plan.
	Answer = 256 << 20
	// Item is for one value among others: a record of a stream, a short answer.
	Item = 16 << 20
)

// TooLong is the error of what is longer than its limit.
type TooLong struct {
	What string
	// Most is the limit in bytes.
	Most int64
}

func (e *TooLong) Error() string {
	return fmt.Sprintf("%s: longer than %d bytes, the most that is read", e.What, e.Most)
}

// Reader reads up to Most bytes of From, and gives a TooLong where there is more.
type Reader struct {
	From io.Reader
	What string
	Most int64
	read int64
}

// NewReader gives a Reader.
func NewReader(from io.Reader, what string, most int64) *Reader {
	return &Reader{From: from, What: what, Most: most}
}

// Renew allows another Most bytes, for the next value of a stream.
func (r *Reader) Renew() { r.read = 0 }

// Read implements io.Reader.
func (r *Reader) Read(b []byte) (int, error) {
	left := r.Most - r.read
	if left == 0 { // one byte more tells whether it ends here
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

// ReadAll reads all, or gives a TooLong.
func ReadAll(from io.Reader, what string, most int64) ([]byte, error) {
	text, err := io.ReadAll(NewReader(from, what, most))
	if err != nil {
		return nil, err
	}
	return text, nil
}

// ReadFile is os.ReadFile with a limit. A device or a pipe without end is read no
// further than a file.
func ReadFile(name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadAll(file, name, most)
}
