package explain

import "github.com/fairlead/fairlead/core/plan"

// Hints about steps whatever their state.
const (
	hintManifest       = "correct the field; until then, the last valid version, if any, stays in use"
	hintAddress        = "kubectl describe service shows why no address is assigned; in a folder, set the annotation fairlead.io/addresses"
	hintBackend        = "fairlead explain backend ADDR shows the health check and the path to it"
	hintHealth         = "check the backend, firewalls, and the annotations fairlead.io/health-check-path and -port"
	hintPath           = "run ip route get for the backend's address on this node"
	hintUndrain        = "end the drain of this node: fairlead undrain, or kubectl uncordon"
	hintBackendUndrain = "end the drain of the backend: fairlead undrain --backend ADDR"
	hintPeers          = "fairlead get peers shows the sessions and their last errors"
)

// ruleHint is what to do about a rule that prevents a route.
func ruleHint(r plan.Rule) string {
	if r == plan.RuleDraining { // also the name of a state
		return hintUndrain
	}
	return hints[string(r)]
}

// hints are what to do about a state or a rule.
var hints = map[string]string{
	"no-endpoints":              "check the EndpointSlice's label kubernetes.io/service-name, its namespace, address family and port name",
	"no-healthy-backend":        hintBackend,
	"panic":                     hintBackend,
	"awaiting-health":           "wait for twice the timeout of the health check",
	"draining":                  "set a weight above 0 (fairlead.io/weights), or start other backends",
	"conflict":                  "use another address or port",
	"dedicated-elsewhere":       "none needed on this node",
	"not-advertised":            "add an Advertisement for the address, or none needed",
	"rejected":                  "use settings that this data plane supports",
	"pending":                   "see the problems in fairlead status; it is retried",
	"idle":                      "none needed; fairlead get backends shows where the backends are",
	"no-matching-advertisement": "compare the labels of Service and node with the selectors of the Advertisements",
	"conditions-not-met":        "see fairlead get backends, or change the conditions of the Advertisement",
	"no-next-hop":               "set --next-hop, or add an address of the family to the interface",
	"attribute-conflict":        "give both Advertisements the same values",
	"no-peers":                  "configure a BGP peer, layer-2 interfaces or a cloud",
	"no-matching-peer":          "check peers of the Advertisement, and nodeSelector of the BGPPeer",
	"no-session":                hintPeers,
	"mode-not-available":        "change mode of the Advertisement, or configure it on this agent",
	"no-l2-owner":               "see fairlead get peers for the members of the segment",
}
