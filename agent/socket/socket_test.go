package socket

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/limit"
)

// An answer that never ends is read only up to its limit.
func TestAnswerIsBounded(t *testing.T) {
	var r struct{ Ready bool }
	if err := Decode(strings.NewReader(`{"ready":true}`), "a.sock", 14, &r); err != nil || !r.Ready {
		t.Errorf("%+v, %v", r, err)
	}
	err := Decode(strings.NewReader(`{"ready":true }`), "a.sock", 14, &r)
	var long *limit.TooLong
	if !errors.As(err, &long) || !strings.Contains(err.Error(), "a.sock") {
		t.Errorf("%v, want an error that names the socket and the limit", err)
	}
}
