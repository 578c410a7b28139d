package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/lab/kube"
)

// rolling replaces all pods behind many Services, one pod after the other: once with
// batched changes and once without.
func (m *meter) rolling(ctx context.Context) error {
	for _, way := range []struct {
		name  string
		flags []string
	}{{"gathered", nil}, {"at once", []string{"--sync-min-period", "0s", "--sync-max-delay", "0s"}}} {
		if err := m.end(); err != nil {
			return err
		}
		f := newFairlead(m.experiment, m.cluster, way.flags...)
		one := &meter{experiment: m.experiment, cluster: m.cluster, subject: f, into: m.into}
		if err := one.roll(ctx, f, way.name); err != nil {
			_ = one.end()
			return fmt.Errorf("%s: %w", way.name, err)
		}
		if err := one.end(); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) roll(ctx context.Context, f *fairlead, name string) error {
	pods := m.cluster.pods(m.RollingPods)
	last, err := m.deploy(ctx, pods)
	if err != nil {
		return err
	}
	if err := startUnready(ctx, f.program()); err != nil {
		return err
	}
	// A completed start is not enough: the last change must be in the kernel.
	if err := m.awaitPairs(ctx, f, last); err != nil {
		return err
	}
	before, failed := f.state(ctx)
	cpu, err := cpuOf(f.program())
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	began := time.Now()
	for i := range pods {
		pods[i] = m.cluster.freshEndpoint()
		if last, err = m.deploy(ctx, pods); err != nil {
			return err
		}
	}
	changed := time.Since(began)
	if err := m.awaitPairs(ctx, f, last); err != nil {
		return err
	}
	took := time.Since(began)
	after, failed := f.state(ctx)
	cpuAfter, err := cpuOf(f.program())
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	m.into.add("rolling calls, "+name, float64(after.Writes-before.Writes))
	m.into.add("rolling entries, "+name, float64(after.Entries-before.Entries))
	m.into.add("rolling cpu, "+name, milliseconds(cpuAfter-cpu))
	m.into.add("rolling delay, "+name, milliseconds(took-changed))
	m.logf("rolling update, %s: %d changes in %.1f s, %d writes of %d entries, %.0f ms of a processor", name,
		m.RollingPods*m.RollingServices, changed.Seconds(), after.Writes-before.Writes, after.Entries-before.Entries, milliseconds(cpuAfter-cpu))
	return nil
}

// deploy sets the endpoints of the first RollingServices Services to these pods, and
// returns the pairs that the kernel must have as a result.
func (m *meter) deploy(ctx context.Context, pods []netip.Addr) (all []pair, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	pods = slices.Clone(pods)
	for i := range m.RollingServices {
		all = append(all, pair{kube.ServiceAddr(i), pods[len(pods)-1]})
		group.Go(func() error { return m.cluster.setEndpoints(ctx, i, pods) })
	}
	return all, group.Wait()
}

// awaitPairs waits until everything is written and the kernel has these pairs.
func (m *meter) awaitPairs(ctx context.Context, f *fairlead, all []pair) error {
	return await(ctx, f.program(), "all pods in the kernel", startLimit, time.Millisecond, func() (bool, error) {
		if ok, err := f.open(); !ok {
			return false, err
		}
		held, err := f.held(all)
		for _, one := range held {
			if !one {
				return false, err
			}
		}
		return err == nil && f.synced(ctx), err
	})
}
