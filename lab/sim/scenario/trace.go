package scenario

import (
	"path"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
	"github.com/fairlead/fairlead/lab/sim/scenario/requests"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// Files returns the content of a file that a scenario refers to, with a path relative to
// the scenario's folder.
type Files func(name string) ([]byte, error)

// trace reads the trace file of a load.
func (r *reader) trace(into *[]requests.Asked) reading.Field {
	return func(n *yaml.Node, at string) {
		name, ok := r.Scalar(n, at, "a file's name")
		if !ok {
			return
		}
		if r.files == nil {
			r.Refuse(n.Line, at, "trace files are not supported here")
			return
		}
		text, err := r.files(name)
		if err != nil {
			r.Refuse(n.Line, at, "%v", err)
			return
		}
		file := name
		if !path.IsAbs(name) {
			file = path.Join(path.Dir(r.File), name)
		}
		asked, problems := requests.Read(file, string(text))
		r.Problems = append(r.Problems, problems...)
		if *into = asked; len(asked) == 0 && len(problems) == 0 {
			r.Refuse(n.Line, at, "%s contains no requests", name)
		}
	}
}

// replay divides a trace among clients. A client that represents several of the trace's
// clients has a flow for each of them.
func (l *Load) replay(clients int, size stochastic.Draw, random *stochastic.Stream) [][]traffic.Record {
	all := make([][]traffic.Record, clients)
	for _, a := range l.Trace {
		if l.Start+a.At >= l.End {
			break
		}
		if a.Size == 0 {
			a.Size = int(size(random))
		}
		i := a.Client % clients
		all[i] = append(all[i], traffic.Record{At: a.At, Size: a.Size, Flow: a.Client / clients})
	}
	return all
}
