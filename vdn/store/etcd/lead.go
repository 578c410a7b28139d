package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// leaders is the bucket of who leads, or wants to.
const leaders = "leaders"

// Lead is kv.Backend's. Who leads has a lease of etcd's, which ends with the process
// or its way to etcd.
func (b *Backend) Lead(ctx context.Context, id string, run func(context.Context)) {
	for ctx.Err() == nil {
		if err := b.leadOnce(ctx, id, run); err != nil && ctx.Err() == nil {
			b.log.Debug("vdn store: no leader can be chosen", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (b *Backend) leadOnce(ctx context.Context, id string, run func(context.Context)) error {
	session, err := concurrency.NewSession(b.client, concurrency.WithTTL(int(leaderTTL.Seconds())), concurrency.WithContext(ctx))
	if err != nil {
		return err
	}
	defer func() {
		// The lease goes at once, so that another need not wait for its end; without
		// etcd it ends by itself.
		closing, cancel := context.WithTimeout(context.Background(), answerWait)
		defer cancel()
		session.Orphan()
		_, _ = b.client.Revoke(closing, session.Lease())
	}()
	election := concurrency.NewElection(session, b.prefix+leaders)
	if err := election.Campaign(ctx, id); err != nil {
		return err
	}
	b.log.Info("vdn store: this controller leads", "id", id)
	leading, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(leading)
	}()
	select {
	case <-session.Done():
		if ctx.Err() == nil {
			b.log.Warn("vdn store: this controller leads no more: etcd has not heard of it", "id", id)
		}
	case <-done:
	}
	stop()
	<-done
	return nil
}
