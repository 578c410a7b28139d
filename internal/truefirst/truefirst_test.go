package truefirst_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/truefirst"
)

func TestCompare(t *testing.T) {
	all := []bool{false, true, false, true}
	slices.SortFunc(all, truefirst.Compare)
	if want := []bool{true, true, false, false}; !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
	if truefirst.Compare(true, true) != 0 || truefirst.Compare(false, false) != 0 {
		t.Error("equal values are not equal")
	}
}
