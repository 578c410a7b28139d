package query

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzStream decodes what an agent streams: events, up to the first invalid one.
func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"reason":"no-frontend","data":"AAAA"} {}`))
	f.Add([]byte(`{"data":"!"}`))
	f.Add([]byte("[[[[[[["))
	f.Fuzz(func(t *testing.T, stream []byte) {
		fuzzlimit.Time(t)
		n := 0
		_ = Each(t.Context(), bytes.NewReader(stream), func(xdp.Event) error { n++; return nil })
		if n > len(stream) {
			t.Errorf("%d events of %d bytes", n, len(stream))
		}
	})
}

// A reader that has seen enough receives nothing more, however much has arrived at once.
func TestEachEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var seen []int
	err := Each(ctx, strings.NewReader("1 2 3 4"), func(n int) error {
		if seen = append(seen, n); n == 2 {
			cancel()
		}
		return nil
	})
	if err != nil || !slices.Equal(seen, []int{1, 2}) {
		t.Errorf("%v, %v; want 1 and 2", seen, err)
	}
}

// A single value of a stream is limited, the whole stream is not.
func TestValuesAreBounded(t *testing.T) {
	value := func(size int) string { return `"` + strings.Repeat("x", size) + `" ` }
	n := 0
	count := func(string) error { n++; return nil }
	if err := Each(t.Context(), strings.NewReader(strings.Repeat(value(limit.Item/4), 6)), count); err != nil || n != 6 {
		t.Errorf("%d values, %v", n, err)
	}
	err := Each(t.Context(), strings.NewReader(value(limit.Item)), count)
	if long := (*limit.TooLong)(nil); !errors.As(err, &long) || !strings.Contains(err.Error(), "one value") {
		t.Errorf("error %v, want one that names the value and the limit", err)
	}
}
