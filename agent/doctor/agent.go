package doctor

import (
	"fmt"
	"strings"
)

func checkAgents(e exam) {
	agents, known := e.Agents.Get()
	switch {
	case !known:
		e.add("socket", Unknown, "status socket: "+e.Agents.Err, "")
	case len(agents) == 0:
		e.add("socket", Info, "no agent, reflector or router runs here", "")
	}
	for _, a := range agents {
		switch {
		case a.Stale:
			e.add("socket", Degraded, a.Socket+" is left over from a process that has exited: nothing listens on it",
				"start the agent, which replaces the file, or run rm "+a.Socket)
		case a.Error != "":
			e.add("socket", Unknown, a.Socket+": "+a.Error, "")
		default:
			e.agent(a)
		}
	}
}

// mostWords limits how many of an agent's problems are repeated.
const mostWords = 3

// agent reports what a running agent reports about itself.
func (e exam) agent(a Agent) {
	e.add("socket", OK, fmt.Sprintf("%s answers on %s (%s)", a.Role, a.Socket, a.Version), "")
	if len(a.Waits) > 0 {
		e.add("ready", Degraded, "not ready: "+strings.Join(a.Waits, "; "), "fairlead status --ready --socket "+a.Socket)
	} else {
		e.add("ready", OK, "the agent is ready", "")
	}
	if len(a.Problems) > 0 {
		e.add("problems", Degraded, fmt.Sprintf("%d problems: %s", len(a.Problems), some(a.Problems)), "fairlead status -o json --socket "+a.Socket+" | jq .problems")
	}
	if len(a.Degraded) > 0 {
		e.add("degraded", Degraded, some(a.Degraded), "see docs/kernel-features.md for the kernels that have it; fairlead status --socket "+a.Socket)
	}
	if len(a.Warnings) > 0 {
		e.add("data-plane", Degraded, some(a.Warnings), "fairlead status --socket "+a.Socket)
	}
}

func some(words []string) string {
	if len(words) > mostWords {
		return strings.Join(words[:mostWords], "; ") + "; ..."
	}
	return strings.Join(words, "; ")
}

func checkManifests(e exam) {
	m, known := e.Manifests.Get()
	switch {
	case !known:
		e.add("manifests", Unknown, "folder of manifests: "+e.Manifests.Err, "")
	case m.Path == "":
	case m.Error != "" && !e.System.Value.Root:
		e.add("manifests", Unknown, m.Error+": run fairlead doctor as the user of the agent", "")
	case m.Error != "":
		e.add("manifests", Broken, m.Error+": the agent cannot read Services from it", "mkdir -p "+m.Path+"; chmod -R u+rX "+m.Path)
	case m.Files == 0:
		e.add("manifests", Degraded, m.Path+" has no file that ends in .yaml, .yml or .json: no Service is served", "add manifests (docs/getting-started.md)")
	default:
		e.add("manifests", OK, fmt.Sprintf("%s has %d files", m.Path, m.Files), "")
	}
}
