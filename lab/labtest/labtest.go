// Package labtest builds labs for tests, which end with the test.
package labtest

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/lab"
)

// Build returns a lab with a topology; leftovers fail the test.
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
