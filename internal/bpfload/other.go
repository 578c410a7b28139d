package bpfload

import (
	"io"
	"strings"

	"github.com/cilium/ebpf"
)

// ownSections is the suffix of sections with variables that only this build has.
const ownSections = ".own"

// Other reads another build of an object, to load it like this one. Maps and variables that
// only this build has are added, so that they can be set and shared; the other build's
// programs do not use them.
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
			had.MaxEntries = m.MaxEntries // of maps that both have
		}
	}
	for name, v := range own.Variables {
		if other.Variables[name] != nil {
			continue
		}
		// In a separate section, because another variable has its place in the other
		// build's.
		section := v.SectionName + ownSections
		if other.Maps[section] == nil {
			other.Maps[section] = own.Maps[v.SectionName].Copy()
		}
		v.SectionName = section
		other.Variables[name] = v
	}
	return other, nil
}
