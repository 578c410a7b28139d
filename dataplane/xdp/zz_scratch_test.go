package xdp

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

func TestZZ(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec(os.Getenv("ELF"))
	must(t, err)
	for _, v := range strings.Fields(os.Getenv("SET")) {
		must(t, spec.Variables[v].Set(true))
	}
	for name, m := range spec.Maps {
		m.Pinning = 0
		if m.MaxEntries == 1 && name[0] != 46 && name != "older_owners" {
			m.MaxEntries = 64
		}
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		s := err.Error()
		t.Fatal(s[:min(len(s), 3000)])
	}
	for n, p := range c.Programs {
		i, _ := p.Info()
		v, _ := i.VerifiedInstructions()
		x, _ := i.Instructions()
		t.Log(n, "verified", v, "xlated", len(x))
	}
}
