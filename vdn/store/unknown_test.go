package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/lab/conformance/networkstore"
	"github.com/fairlead/fairlead/vdn/store/fake"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// overtaken commits a batch, loses the response, and lets another batch follow, so that the
// writer does not find its own batch as the last.
type overtaken struct {
	kv.Backend
	losing bool
}

func (o *overtaken) Commit(ctx context.Context, b kv.Batch) error {
	err := o.Backend.Commit(ctx, b)
	if err != nil || !o.losing {
		return err
	}
	o.losing = false
	if err := o.Backend.Commit(ctx, kv.Batch{Revision: b.Revision + 1, Writer: "another"}); err != nil {
		return err
	}
	return fmt.Errorf("%w: the answer is lost", kv.ErrUnavailable)
}

// TestReleasedUnknown loses the response to a release: what was released is returned
// anyway.
func TestReleasedUnknown(t *testing.T) {
	o := &overtaken{Backend: fake.New(100).Open(fake.Faults{}, 1)}
	s := openOn(t, func() (kv.Backend, error) { return o, nil })
	if _, err := s.PutNetwork(t.Context(), networkstore.Network("a", "10.1.0.0/24"), nil); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, _, err := s.Attach(t.Context(), networkstore.Request("a", fmt.Sprint("c", i)), 1); err != nil {
			t.Fatal(err)
		}
	}
	o.losing = true
	released, err := s.Collect(t.Context(), "n1", "a", []string{"c0.net1"})
	if err != nil || fmt.Sprint(released) != "[c1.net1 c2.net1]" {
		t.Errorf("%v are released, %v", released, err)
	}
}
