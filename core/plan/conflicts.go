package plan

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
)

// Conflicts returns a problem for each VIP of a Service that another Service or a node
// has, in the order of frontends.
func Conflicts(frontends []Frontend) (problems []problem.Problem) {
	type claim struct {
		id  service.ID
		vip netip.Addr
	}
	at := map[claim]int{} // index in problems
	more := map[claim]int{}
	for i := range frontends {
		f := &frontends[i]
		if f.State != Conflict {
			continue
		}
		c := claim{f.Service.ID, f.Key.VIP}
		if _, ok := at[c]; ok {
			more[c]++
			continue
		}
		at[c] = len(problems)
		problems = append(problems, problem.Problem{
			Object: "Service " + f.Service.ID.String(), Where: f.Service.Origin, Message: f.Reason,
		})
	}
	for c, n := range more {
		problems[at[c]].Message += fmt.Sprintf(" (and %d more of its ports)", n)
	}
	return problems
}
