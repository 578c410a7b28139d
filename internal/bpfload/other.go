package bpfload

import (
	"io"

	"github.com/cilium/ebpf"
)

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
	addMissing(other.Maps, own.Maps)
	addMissing(other.Variables, own.Variables)
	return other, nil
}

func addMissing[T any](to, from map[string]T) {
	for name, v := range from {
		if _, has := to[name]; !has {
			to[name] = v
		}
	}
}
