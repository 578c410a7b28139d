package packet

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestVerifier(t *testing.T) {
	spec, err := loadPacket()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range spec.Maps {
		if name[0] != 0x2e { m.MaxEntries = max(m.MaxEntries, 1024) }
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	var v *ebpf.VerifierError
	if errors.As(err, &v) {
		t.Fatalf("%+v", v)
	}
	if err != nil {
		t.Fatal(err)
	}
	for n, p := range c.Programs {
		t.Log(n, p.VerifierLog)
	}
	c.Close()
}
