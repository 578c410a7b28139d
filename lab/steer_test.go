package lab_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab"
)

func TestSteer(t *testing.T) {
	l := build(t, pair(lab.Shape{}))
	h := l.Host("a")
	for _, mask := range []uint64{1, 0} {
		if err := h.Steer("eth0", mask); err != nil {
			t.Error(err)
		}
	}
	if err := h.Steer("eth9", 1); err == nil || !strings.Contains(err.Error(), "eth9") {
		t.Errorf("a missing interface: %v", err)
	}
	// b's eth0 is another one: this thread's view of the machine is unchanged.
	if err := l.Host("b").Steer("eth0", 1); err != nil {
		t.Error(err)
	}
}
