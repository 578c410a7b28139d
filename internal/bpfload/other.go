package bpfload

import (
	"io"
	"strings"

	"github.com/cilium/ebpf"
)

// ownSections ends the names of sections that hold variables of this build alone.
const ownSections = ".own"

// Other reads another build of an object, to load it like this one. What only this
// build has of maps and variables is added, so that it can be set and shared; the
// other's programs do not use it.
func Other(object io.ReaderAt, load func() (*ebpf.CollectionSpec, error)) (*ebpf.CollectionSpec, error) {
	other, err := ebpf.LoadCollectionSpecFromReader(object)
	if err != nil {
		return nil, err
	}
	own, err := load()
	if err != nil {
		return nil, err
	}
	for name, m := range own.Maps {
		if had := other.Maps[name]; had == nil {
			other.Maps[name] = m
		} else if !strings.HasPrefix(name, ".") {
			had.MaxEntries = m.MaxEntries // of the maps that both are on
		}
	}
	for name, v := range own.Variables {
		if other.Variables[name] != nil {
			continue
		}
		// In a section of their own: in the other's another variable has that place.
		section := v.SectionName + ownSections
		if other.Maps[section] == nil {
			other.Maps[section] = own.Maps[v.SectionName].Copy()
		}
		v.SectionName = section
		other.Variables[name] = v
	}
	return other, nil
}
