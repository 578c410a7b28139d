// Package load is what loading programs onto pinned maps has in common: which
// maps outlive the agent, in what size, and what to do where the kernel refuses.
package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrVersion is what Explain says of a pinned map that another version has made.
var ErrVersion = errors.New("a pinned map is of another version of Fairlead: detach that one first, which ends its flows")

// Explain adds the mend to an error of the loader. misfit is what to say of a
// pinned map that is not as the programs want it: ErrVersion, or better.
func Explain(err, misfit error) error {
	var verifier *ebpf.VerifierError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ebpf.ErrMapIncompatible):
		return fmt.Errorf("%w: %w", misfit, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("load the programs: needs root (CAP_BPF, CAP_NET_ADMIN): %w", err)
	case errors.As(err, &verifier):
		return fmt.Errorf("load the programs: this kernel refuses one; Fairlead needs Linux 6.1 or later with CONFIG_DEBUG_INFO_BTF: %+v", verifier)
	}
	return fmt.Errorf("load the programs: %w", err)
}

// Fit is what becomes of a map that is pinned in another size than it is to have.
type Fit int

const (
	// Refuse leaves it to the loader, which refuses such a map.
	Refuse Fit = iota
	// Keep takes the size that it has, for the sake of what it holds.
	Keep
	// Renew starts anew: what it holds is worth nothing in another size.
	Renew
)

// Pin sets maps of a spec to be pinned by their names in a folder, and to the
// sizes that they can have there.
func Pin(spec *ebpf.CollectionSpec, folder string, maps map[string]Fit) error {
	for name, fit := range maps {
		m := spec.Maps[name]
		m.Pinning = ebpf.PinByName
		size, err := pinnedSize(filepath.Join(folder, name))
		switch {
		case err != nil:
			return fmt.Errorf("pinned map %s: %w", name, err)
		case size == 0 || size == m.MaxEntries || fit == Refuse:
		case fit == Keep:
			m.MaxEntries = size
		case fit == Renew:
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				return fmt.Errorf("pinned map %s: %w", name, err)
			}
		}
	}
	return nil
}

// pinnedSize is 0 where nothing is pinned.
func pinnedSize(path string) (uint32, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return m.MaxEntries(), nil
}
