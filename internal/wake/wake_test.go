package wake_test

import (
	"testing"

	"github.com/fairlead/fairlead/internal/wake"
)

// TestUp checks that requests do not block, and that pending ones are merged.
func TestUp(t *testing.T) {
	c := make(chan struct{}, 1)
	for range 3 {
		wake.Up(c)
	}
	<-c
	if len(c) != 0 {
		t.Error("three requests woke more than once")
	}
	wake.Up(c)
	if len(c) != 1 {
		t.Error("a request after a wake-up was lost")
	}
}
