package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/agent/verdict"
)

// statuses returns the status of all agents, for the verdict.
func (q query) statuses(ctx context.Context) []verdict.Answer {
	answers := make([]verdict.Answer, len(q.pods))
	errs := q.each(ctx, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, q.Timeout)
		defer cancel()
		a := &answers[i]
		var err error
		for _, args := range [][]string{{"status", "-o", "json", "--tables"}, {"status", "-o", "json"}} { // an older agent has no --tables
			var out bytes.Buffer
			a.Sent = time.Now()
			if err = q.run(ctx, q.pods[i], args, &out); err == nil {
				err = json.Unmarshal(out.Bytes(), &a.Status)
			}
			if a.Received = time.Now(); err == nil {
				return nil
			}
		}
		return err
	})
	for i := range answers {
		answers[i].Name, answers[i].Err = q.pods[i].Spec.NodeName, errs[i]
	}
	return answers
}
