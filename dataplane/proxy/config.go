package proxy

import (
	"errors"
	"fmt"
	"log/slog"
)

// Defaults of Config. Only what is used costs memory, except for endpoints (24 bytes
// each), frontends (24 bytes each), affinities and senders (about 130 bytes each).
const (
	DefaultMaxFrontends    = 1 << 18
	DefaultMaxTargets      = 1 << 20
	DefaultMaxSourceRanges = 1 << 16
	DefaultMaxAffinities   = 1 << 16
	DefaultMaxSenders      = 1 << 15
	// DefaultNamespaces is where ip-netns(8) and container runtimes keep the network
	// namespaces of pods.
	DefaultNamespaces = "/run/netns"
)

// Config configures a DataPlane.
type Config struct {
	// PinDir is a directory on a BPF file system for exclusive use. Pinned objects
	// keep working without this process and are found again.
	PinDir string
	// Cgroup is the directory of the cgroup (version 2) whose processes are clients.
	// Empty: the root of the hierarchy, which includes all of the node's.
	Cgroup string
	// NodeOnly leaves pods to the packet programs, as required if their sidecars
	// redirect by the Service's address.
	NodeOnly bool
	// MaxFrontends, MaxTargets and MaxSourceRanges are capacities. Endpoints count
	// twice while they change, and once for all frontends with the same ones.
	// MaxAffinities limits the remembered clients, MaxSenders the endpoints of
	// unconnected UDP sockets: the least recently used one is evicted. 0 for the
	// defaults.
	MaxFrontends, MaxTargets, MaxSourceRanges, MaxAffinities, MaxSenders uint32
	// Namespaces is the directory of network namespaces in which UDP sockets of
	// removed endpoints are ended, in addition to its own; empty for
	// DefaultNamespaces. It need not exist.
	Namespaces string
	// Log receives errors that do not stop the rest; nil for slog's default.
	Log *slog.Logger

	withoutIterator bool // for tests: as on a kernel that rejects the program
}

func (c *Config) complete() error {
	if c.PinDir == "" {
		return errors.New("PinDir is empty: name a folder on a BPF file system")
	}
	for _, f := range []struct {
		value    *uint32
		instead  uint32
		name     string
		smallest uint32
	}{
		{&c.MaxFrontends, DefaultMaxFrontends, "MaxFrontends", 1},
		{&c.MaxTargets, DefaultMaxTargets, "MaxTargets", 1},
		{&c.MaxSourceRanges, DefaultMaxSourceRanges, "MaxSourceRanges", 1},
		{&c.MaxAffinities, DefaultMaxAffinities, "MaxAffinities", leastLRU},
		{&c.MaxSenders, DefaultMaxSenders, "MaxSenders", leastLRU},
	} {
		if *f.value == 0 {
			*f.value = f.instead
		}
		if *f.value < f.smallest || *f.value > 1<<30 {
			return fmt.Errorf("%s is %d: must be %d to %d", f.name, *f.value, f.smallest, 1<<30)
		}
	}
	if c.Namespaces == "" {
		c.Namespaces = DefaultNamespaces
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return nil
}

// leastLRU: the kernel allocates entries of such a map in batches per CPU, and evicts
// entries in use if there are few.
const leastLRU = 1024
