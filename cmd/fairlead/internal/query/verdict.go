package query

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/agent/verdict"
)

// ShowVerdict prints whether the daemons at these sockets agree. It is an error if they do
// not.
func (q *Query) ShowVerdict(cmd *cobra.Command, sockets []string) error {
	v, answers := verdict.Settled(cmd.Context(), func(ctx context.Context) []verdict.Answer { return askAll(ctx, sockets) })
	err := q.Print(cmd.OutOrStdout(), verdict.Sheet(v, answers))
	if err == nil && !v.Agree {
		err = errors.New("the nodes do not agree, or one did not answer")
	}
	return err
}

// askAll asks all daemons in parallel, each for at most Timeout.
func askAll(ctx context.Context, sockets []string) []verdict.Answer {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	answers := make([]verdict.Answer, len(sockets))
	var wait sync.WaitGroup
	for i, socket := range sockets {
		wait.Go(func() {
			a := verdict.Answer{Name: socket, Sent: time.Now()}
			a.Status, a.Err = status.FetchOnly(ctx, socket, selection.Selection{Tables: true})
			a.Received = time.Now()
			if a.Err == nil && a.Node != "" {
				a.Name = a.Node
			}
			answers[i] = a
		})
	}
	wait.Wait()
	return answers
}
