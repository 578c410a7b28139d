package controller

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/controller/cloudroutes"
	"github.com/fairlead/fairlead/internal/sleep"
)

// offersPause is the interval between reads of the agents' offers. Each read is one
// request, by the leader only.
const offersPause = time.Second

// carry makes the cloud route to the agents what they offer.
func (t *term) carry(ctx context.Context) {
	board, err := cloudroutes.NewBoard(t.Client, t.Namespace)
	if err != nil {
		t.Log.Error("failed to start updating cloud routes", "error", err)
		return
	}
	keeper := cloud.Keeper{Provider: t.Cloud, Log: t.Log}
	last := ""
	report := func(err error) {
		reason := ""
		if err != nil && ctx.Err() == nil {
			reason = err.Error()
		}
		if reason != last && reason != "" {
			t.Log.Warn("failed to update cloud routes from the agents' offers, will retry", "error", reason)
		}
		last = reason
	}
	for ; ctx.Err() == nil; sleep.For(ctx, offersPause) {
		all, err := board.Read(ctx)
		if report(err); all == nil && err != nil {
			continue // nothing is known
		}
		if t.leading() != nil {
			return
		}
		if state, current := keeper.Pass(ctx, all); current {
			report(board.Write(ctx, state))
		}
	}
}
