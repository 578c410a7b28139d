// Package gather collects the facts for package doctor: from /proc and /sys, through
// netlink and BPF system calls, and from the sockets of running agents. It only reads;
// features are probed in temporary network namespaces (internal/features). It decides
// nothing: package doctor judges the facts.
package gather

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/agent/doctor"
)

// Limit is the timeout for collecting all facts.
const Limit = 2 * time.Second

// late is why a fact is unknown that was not collected within the limit.
const late = "not finished in time"

// part is one fact, and how to collect it.
type part struct {
	// get may block forever; it then leaks until this short-lived process ends.
	get func(context.Context) func(*doctor.Facts)
	// late records that get has not finished.
	late func(*doctor.Facts)
}

// fact returns a part that sets one field.
func fact[T any](field func(*doctor.Facts) *doctor.Known[T], get func(context.Context) (T, error)) part {
	set := func(k doctor.Known[T]) func(*doctor.Facts) {
		return func(f *doctor.Facts) { *field(f) = k }
	}
	return part{
		get: func(ctx context.Context) func(*doctor.Facts) {
			value, err := get(ctx)
			return set(known(value, err))
		},
		late: set(doctor.Known[T]{Err: late}),
	}
}

func known[T any](value T, err error) doctor.Known[T] {
	if err != nil {
		return doctor.Known[T]{Value: value, Err: err.Error()}
	}
	return doctor.Known[T]{Value: value}
}

// Collect collects all facts that the roles need within Limit, and returns the options
// with the roles filled in.
func Collect(ctx context.Context, o doctor.Options) (*doctor.Facts, doctor.Options) {
	return CollectWithin(ctx, o, Limit)
}

// CollectWithin is Collect with another limit.
func CollectWithin(ctx context.Context, o doctor.Options, limit time.Duration) (*doctor.Facts, doctor.Options) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := &doctor.Facts{Features: map[string]doctor.Known[[]doctor.Feature]{}}
	// Everything else waits for the agents, because their roles decide what to collect.
	asking, stop := context.WithTimeout(ctx, limit*3/10)
	defer stop()
	collect(asking, f, []part{agentsPart(o)})
	o = o.WithRoles(f.Agents.Value)
	collect(ctx, f, parts(o))
	return f, o
}

// collect runs parts in parallel. Parts that are not finished when ctx ends are recorded
// as late.
func collect(ctx context.Context, f *doctor.Facts, parts []part) {
	type result struct {
		index int
		apply func(*doctor.Facts)
	}
	results := make(chan result, len(parts)) // nobody waits for late parts
	for i, p := range parts {
		p.late(f)
		go func() { results <- result{i, p.get(ctx)} }()
	}
	for range parts {
		select {
		case r := <-results:
			r.apply(f)
		case <-ctx.Done():
			return
		}
	}
}

// parts returns the facts to collect.
func parts(o doctor.Options) []part {
	all := []part{
		fact(func(f *doctor.Facts) *doctor.Known[doctor.System] { return &f.System }, system),
		fact(func(f *doctor.Facts) *doctor.Known[map[string]doctor.Sysctl] { return &f.Sysctls }, sysctls),
		fact(func(f *doctor.Facts) *doctor.Known[doctor.Clock] { return &f.Clock }, clock),
		fact(func(f *doctor.Facts) *doctor.Known[doctor.BPFFS] { return &f.Pins }, with(o, bpfFolder)),
		fact(func(f *doctor.Facts) *doctor.Known[doctor.Cgroup] { return &f.CgroupRoot }, with(o, cgroup)),
		fact(func(f *doctor.Facts) *doctor.Known[doctor.Manifests] { return &f.Manifests }, with(o, manifests)),
		fact(func(f *doctor.Facts) *doctor.Known[doctor.Network] { return &f.Network }, with(o, network)),
		fact(func(f *doctor.Facts) *doctor.Known[[]doctor.Socket] { return &f.Sockets }, with(o, sockets)),
		fact(func(f *doctor.Facts) *doctor.Known[[]doctor.Process] { return &f.Processes }, processes),
		fact(func(f *doctor.Facts) *doctor.Known[[]string] { return &f.Chains }, chains),
		fact(func(f *doctor.Facts) *doctor.Known[int] { return &f.IPVSServices }, ipvsServices),
	}
	for _, c := range o.Components() {
		all = append(all, featuresPart(c))
	}
	return all
}

// with binds a getter to the options.
func with[T any](o doctor.Options, get func(context.Context, doctor.Options) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) { return get(ctx, o) }
}
