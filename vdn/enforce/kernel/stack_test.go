package kernel

import (
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/bpfstack"
)

// TestStackFitsLinux61 checks the stack size: newer kernels allow programs more.
func TestStackFitsLinux61(t *testing.T) {
	spec, err := loadVdn()
	if err != nil {
		t.Fatal(err)
	}
	bpfstack.Check(t, spec)
}
