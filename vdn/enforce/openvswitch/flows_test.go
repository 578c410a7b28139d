package openvswitch

import (
	"maps"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// Every attachment that cannot be enforced is reported, not only the last.
func TestEveryBadAttachmentIsReported(t *testing.T) {
	local := []vdn.Attachment{{ID: "a", Network: "gone", Device: "p1"}, {ID: "b", Network: "lost", Device: "p2"}}
	failed := enforce.Failed(translate([]vdn.Slice{{Name: "known"}}, local, nil, nil).err)
	if ids := slices.Sorted(maps.Keys(failed)); !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("reported are %v, want a and b", ids)
	}
}
