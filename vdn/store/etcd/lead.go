package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/internal/sleep"
)

// leaders is the bucket with the current leader.
const leaders = "leaders"

// Lead implements kv.Backend. The leader has an etcd lease, which ends with the process or
// its connection to etcd.
func (b *Backend) Lead(ctx context.Context, id string, run func(context.Context)) {
	for ctx.Err() == nil {
		if err := b.leadOnce(ctx, id, run); err != nil && ctx.Err() == nil {
			b.log.Debug("vdn store: leader election failed", "error", err)
		}
		sleep.For(ctx, candidateWait)
	}
}

// leadOnce becomes the leader if no other is.
func (b *Backend) leadOnce(ctx context.Context, id string, run func(context.Context)) error {
	var there listed
	if err := b.ask(ctx, kvRange, get(b.key(leaders, "now")), &there); err != nil || len(there.pairs) > 0 {
		return err
	}
	began := time.Now()
	var lease granted
	if err := b.askOnce(ctx, leaseGrant, message(nil).number(1, int64(leaderTTL.Seconds())), &lease); err != nil {
		return err
	}
	defer b.revoke(lease.id)
	key := b.key(leaders, "now")
	var d decided
	if err := b.askOnce(ctx, kvTxn, txn([]message{isAbsent(key)}, []message{opPut(key, id, lease.id)}, nil), &d); err != nil || !d.yes {
		return err
	}
	b.log.Info("vdn store: this controller leads", "identity", id)
	leading, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(leading)
	}()
	if err := b.renew(leading, lease.id, began, done); err != nil && ctx.Err() == nil {
		b.log.Warn("vdn store: this controller stopped leading", "identity", id, "error", err)
	}
	stop()
	<-done
	return nil
}

// renew keeps a lease that was requested at began alive, until done is closed or the lease
// may have expired.
func (b *Backend) renew(ctx context.Context, lease int64, began time.Time, done <-chan struct{}) error {
	for last := error(nil); ; {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(leaderTTL / 6):
		}
		at := time.Now()
		if at.Sub(began) > leaderTTL {
			return fmt.Errorf("etcd has not renewed it for %v: %w", leaderTTL, last)
		}
		until, cancel := context.WithDeadline(ctx, began.Add(leaderTTL))
		err := b.keep(until, lease)
		cancel()
		switch {
		case err == nil:
			began = at
		case errors.Is(err, errEnded):
			return err
		default:
			last = err
		}
	}
}

var errEnded = errors.New("etcd has ended the leader's lease")

// keep renews a lease once.
func (b *Backend) keep(ctx context.Context, lease int64) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	return b.by(ctx, func(ctx context.Context, conn *grpc.ClientConn, _ <-chan struct{}) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := say(ctx, conn, leaseKeepAlive, message(nil).number(1, lease))
		if err != nil {
			return err
		}
		var g granted
		if err := stream.RecvMsg(&g); err != nil {
			return err
		}
		if g.ttl <= 0 {
			return errEnded
		}
		return nil
	})
}

// revoke ends a lease, so that another process can lead immediately. Without etcd it
// expires.
func (b *Backend) revoke(lease int64) {
	_ = b.askOnce(context.Background(), leaseRevoke, message(nil).number(1, lease), &granted{})
}
