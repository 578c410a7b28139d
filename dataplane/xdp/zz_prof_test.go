package xdp

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

func TestZZProf(t *testing.T) {
	spec, err := config().withDefaults().spec()
	must(t, err)
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	n := os.Getenv("ZZ")
	for k := range spec.Programs {
		if k != n {
			delete(spec.Programs, k)
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelInstruction, LogSizeStart: 1 << 28}})
	must(t, err)
	defer coll.Close()
	for n, p := range coll.Programs {
		os.WriteFile("/tmp/vf/"+n+".log", []byte(p.VerifierLog), 0o644)
	}
}
