package status

import (
	"fmt"

	"github.com/fairlead/fairlead/plan"
	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
)

// conflicts gives a problem for each Service that has lost a VIP and port to another,
// or to a node, in the order of their frontends.
func conflicts(frontends []plan.Frontend) (problems []source.Problem) {
	at := map[service.ID]int{} // in problems
	more := map[service.ID]int{}
	for i := range frontends {
		f := &frontends[i]
		if f.State != plan.Conflict {
			continue
		}
		if _, ok := at[f.Service.ID]; ok {
			more[f.Service.ID]++
			continue
		}
		at[f.Service.ID] = len(problems)
		problems = append(problems, source.Problem{
			Object: "Service " + f.Service.ID.String(), Where: f.Service.Origin, Message: f.Reason,
		})
	}
	for id, n := range more {
		problems[at[id]].Message += fmt.Sprintf(" (and %d more of its frontends: fairlead services %s)", n, id)
	}
	return problems
}
