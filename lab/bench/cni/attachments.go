package cni

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/vdn"
)

const (
	// attaching is the number of containers that one controller must attach within
	// attachGoal seconds for attachClients concurrent clients, while it is killed killing
	// times.
	attaching, attachGoal  = 500, 60
	attachClients, killing = 8, 3
)

// attachments measures a controller that is killed several times during the run.
func attachments(ctx context.Context, o Options, r *bench.Report) error {
	o.logf("attachments: %d, the controller killed %d times", attaching, killing)
	got, err := vdn.Attachments(ctx, vdn.Options{Binary: o.Binary, Attachments: attaching, Clients: attachClients, Kills: killing})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("attachments, %d, controller killed %d times: ", got.Attachments, got.Kills)
	r.Rows = append(r.Rows,
		bench.Plain(name+"until all are up", "s", got.Elapsed.Seconds()).AtMost(attachGoal),
		bench.Plain(name+"a minute", "attachments", got.PerMinute),
		bench.Plain(name+"addresses given twice", "addresses", float64(got.Double)).AtMost(0),
		bench.Plain(name+"leases lost", "leases", float64(got.Lost)).AtMost(0),
	)
	r.Note("attachments: leased and up, by %d clients at once, including outages of the controller; %d requests were retried", attachClients, got.Retries)
	return nil
}
