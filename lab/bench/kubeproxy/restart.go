package kubeproxy

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/lab/kube"
)

// restart kills the proxy and starts it again while requests continue.
func (m *meter) restart(ctx context.Context) error {
	if ours, ok := m.subject.(*fairlead); ok {
		if err := m.restartIdle(ctx, ours); err != nil {
			return err
		}
	}
	return m.restartBehind(ctx)
}

// restartIdle restarts without any change, so nothing must be written.
func (m *meter) restartIdle(ctx context.Context, f *fairlead) error {
	n, before, err := f.reader.Entries()
	if err != nil {
		return err
	}
	err = m.whileRequests(func() error {
		if err := f.program().Stop(); err != nil {
			return err
		}
		if err := startUnready(ctx, f.program()); err != nil {
			return err
		}
		return await(ctx, f.program(), "in sync", startLimit, 10*time.Millisecond, func() (bool, error) { return f.synced(ctx), nil })
	})
	if err != nil {
		return err
	}
	_, after, err := f.reader.Entries()
	if err != nil {
		return err
	}
	s, err := f.state(ctx)
	if err != nil {
		return err
	}
	written := float64(s.Entries)
	if written == 0 && after != before {
		return fmt.Errorf("the agent reports that it wrote nothing, but the %d entries changed", n)
	}
	m.into.add("rewritten", written)
	m.logf("started again: %.0f of %d entries written", written, n)
	return nil
}

// restartBehind restarts with a change while the proxy is down. The proxy is in sync when
// the kernel has that change.
func (m *meter) restartBehind(ctx context.Context) error {
	var took time.Duration
	err := m.whileRequests(func() error {
		if err := m.subject.program().Stop(); err != nil {
			return err
		}
		made, err := m.cluster.changeEndpoint(ctx, m.cluster.services/2)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := startUnready(ctx, m.subject.program()); err != nil {
			return err
		}
		err = await(ctx, m.subject.program(), "in sync", startLimit, m.subject.pause(), func() (bool, error) {
			held, err := m.subject.held([]pair{made})
			return err == nil && held[0], err
		})
		took = time.Since(began)
		return err
	})
	if err != nil {
		return err
	}
	m.into.add("restart", took.Seconds())
	m.logf("started again: in sync after %.2f s; %.0f requests lost", took.Seconds(), m.into["lost"][len(m.into["lost"])-1])
	return m.subject.verify()
}

// whileRequests counts the requests to a Service that are lost while f runs.
func (m *meter) whileRequests(f func() error) error {
	s := newStream(kube.ServiceAddr(m.cluster.services / 3))
	time.Sleep(200 * time.Millisecond)
	err := f()
	time.Sleep(200 * time.Millisecond)
	s.stop()
	if err != nil {
		return err
	}
	if s.err != nil {
		m.note("%s among %d, started again: the first request that failed: %v", m.subject.name(), m.cluster.services, s.err)
	}
	m.into.add("lost", float64(s.lost.Load()))
	m.into.add("requests", float64(s.sent.Load()))
	return nil
}
