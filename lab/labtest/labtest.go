// Package labtest builds labs for tests, which end with them.
package labtest

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/lab"
)

// Build gives a lab of a topology; what was left behind fails the test.
func Build(t testing.TB, top lab.Topology) *lab.Lab {
	t.Helper()
	l, err := lab.Build(context.Background(), top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
