package proxy

import (
	"errors"
	"fmt"
	"log/slog"
)

// Defaults of what a Config leaves open. Only what is used of them costs
// memory, but for targets (24 bytes each), frontends (24 bytes each),
// affinities and senders (some 130 bytes each).
const (
	DefaultMaxFrontends    = 1 << 18
	DefaultMaxTargets      = 1 << 20
	DefaultMaxSourceRanges = 1 << 16
	DefaultMaxAffinities   = 1 << 16
	DefaultMaxSenders      = 1 << 15
	// DefaultNamespaces is where ip-netns(8) and container runtimes keep the
	// network namespaces of pods.
	DefaultNamespaces = "/run/netns"
)

// Config says how a DataPlane is set up.
type Config struct {
	// PinDir is a folder on a BPF file system that nobody else uses. What is
	// pinned there goes on working without this process and is found again.
	PinDir string
	// Cgroup is the folder of the cgroup (version 2) whose processes are
	// clients. Empty: the root of the hierarchy, so all of the node's.
	Cgroup string
	// NodeOnly leaves pods to the programs for packets, as those need whose
	// sidecars redirect by the Service's address.
	NodeOnly bool
	// MaxFrontends, MaxTargets and MaxSourceRanges are for how many there is
	// room. Targets count twice while they change, and once for all frontends
	// that have the same ones. MaxAffinities is how many clients are
	// remembered, MaxSenders how many targets of unconnected UDP sockets: the
	// least recently used one gives way. 0 for the defaults.
	MaxFrontends, MaxTargets, MaxSourceRanges, MaxAffinities, MaxSenders uint32
	// Namespaces is the folder of network namespaces in which UDP sockets of
	// targets that are gone are ended, beside the own one; empty for
	// DefaultNamespaces. One that is not there is an empty one.
	Namespaces string
	// Log is told what could not be done and does not stop the rest; nil for
	// slog's default.
	Log *slog.Logger

	withoutIterator bool // for tests: as on a kernel that refuses the program
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
			return fmt.Errorf("%s is %d: take %d to %d", f.name, *f.value, f.smallest, 1<<30)
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

// leastLRU: the kernel hands out places of such a map in lots a CPU, and forgets
// what is in use where it has few.
const leastLRU = 1024
