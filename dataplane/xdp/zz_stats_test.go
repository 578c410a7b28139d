package xdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

func TestZZStats(t *testing.T) {
	spec, err := config().withDefaults().spec()
	must(t, err)
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	start := time.Now()
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	if err != nil {
		var ve *ebpf.VerifierError
		errors.As(err, &ve)
		l := ve.Log
		if len(l) > 25 {
			l = l[len(l)-25:]
		}
		fmt.Println(strings.Join(l, "\n"))
	}
	must(t, err)
	defer coll.Close()
	fmt.Println(time.Since(start))
	for n, p := range coll.Programs {
		i := strings.LastIndex(p.VerifierLog, "processed")
		fmt.Println(n, p.VerifierLog[i:])
		fmt.Println(p.VerifierLog[:i])
	}
}
