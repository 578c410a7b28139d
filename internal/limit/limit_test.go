package limit

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadAll(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 1000} {
		text := strings.Repeat("x", n)
		for name, from := range map[string]io.Reader{
			"whole": strings.NewReader(text), "in bytes": iotest.OneByteReader(strings.NewReader(text)), "end with the data": iotest.DataErrReader(strings.NewReader(text)),
		} {
			got, err := ReadAll(from, "text", 512)
			var long *TooLong
			if n <= 512 && (err != nil || string(got) != text) || n > 512 && (!errors.As(err, &long) || got != nil) {
				t.Errorf("%d bytes %s: %d bytes, %v", n, name, len(got), err)
			}
		}
	}
}

func TestReadFile(t *testing.T) {
	if _, err := ReadFile("/dev/zero", 4096); err == nil || err.Error() != "/dev/zero: longer than 4096 bytes, the most that is read" {
		t.Errorf("/dev/zero: %v", err)
	}
	name := filepath.Join(t.TempDir(), "a")
	if _, err := ReadFile(name, 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(name, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(name, 3); err != nil || string(got) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestRenew checks that a stream may be longer than its limit, but a value in it may not.
func TestRenew(t *testing.T) {
	stream := strings.Repeat(`"abc" `, 1000)
	r := NewReader(strings.NewReader(stream+`"`+strings.Repeat("x", 2000)+`"`), "stream", 1024)
	dec := json.NewDecoder(r)
	var err error
	n := 0
	for ; err == nil; n++ {
		r.Renew()
		var s string
		err = dec.Decode(&s)
	}
	var long *TooLong
	if n != 1001 || !errors.As(err, &long) || long.What != "stream" {
		t.Errorf("%d values, then %v", n-1, err)
	}
}
