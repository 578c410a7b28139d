package packet

import (
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/bpfstack"
)

// TestStackFitsLinux61: newer kernels allow programs more stack.
func TestStackFitsLinux61(t *testing.T) {
	spec, err := loadPacket()
	if err != nil {
		t.Fatal(err)
	}
	bpfstack.Check(t, spec)
}
