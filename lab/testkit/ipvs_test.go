package testkit

import (
	"testing"
	"time"
)

func TestGuestLimit(t *testing.T) {
	for want, args := range map[time.Duration][]string{
		3 * time.Minute: {"x.test", "-test.v=true", "-test.timeout=2m0s"},
		24 * time.Hour:  {"x.test", "-test.timeout=0s"},
	} {
		if got := guestLimit(args); got != want {
			t.Errorf("%v: %v, want %v", args, got, want)
		}
	}
}
