// Package check validates manifests without an agent, a cluster or a kernel. It reads them
// with the agent's own code (source/manifest), plans with core/plan, and asks the data
// planes what they do not support. What an agent would reject or ignore is an error; what
// it accepts, but was probably not meant, is a warning.
//
// It changes nothing and reads only the given files. Tests need no privileges.
package check

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/manifest"
)

// Severity says whether an agent would accept the input.
type Severity string

// Severities.
const (
	Error   Severity = "error"   // rejected or ignored
	Warning Severity = "warning" // accepted, but probably not meant
)

// Rule identifies what a Finding is about.
type Rule string

// Rules. Those with the name of a state or a rule of the plan are its.
const (
	RuleInvalid           Rule = "invalid"              // the agent rejects or ignores it when it reads the manifests
	RuleConfig            Rule = "config"               // an agent's configuration file is invalid
	RuleConflict          Rule = Rule(plan.Conflict)    // another Service has the address and port
	RuleNoEndpoints       Rule = Rule(plan.NoEndpoints) // a frontend has no backend
	RuleDraining          Rule = Rule(plan.Draining)    // all backends have weight 0
	RuleNotAdvertised     Rule = Rule(plan.RuleNoMatchingAdvertisement)
	RuleConditionsNotMet  Rule = Rule(plan.RuleConditionsNotMet)
	RuleAttributeConflict Rule = Rule(plan.RuleAttributeConflict)
	RuleUnsupported       Rule = "unsupported"          // the data plane rejects the frontend
	RuleSelectsNothing    Rule = "selects-nothing"      // an Advertisement selects no address
	RuleUnknownPeer       Rule = "unknown-peer"         // an Advertisement names a BGPPeer that does not exist
	RuleUnknownPool       Rule = "unknown-pool"         // an Advertisement or a Service names an AddressPool that does not exist
	RuleNoMatchingNode    Rule = "no-matching-node"     // no node is selected
	RulePool              Rule = "address-not-assigned" // no pool gives a Service the address that it requests
)

// Rules lists all rules.
var Rules = []Rule{
	RuleInvalid, RuleConfig, RuleConflict, RuleNoEndpoints, RuleDraining, RuleNotAdvertised, RuleConditionsNotMet, RuleAttributeConflict,
	RuleUnsupported, RuleSelectsNothing, RuleUnknownPeer, RuleUnknownPool, RuleNoMatchingNode, RulePool,
}

// Finding is a problem with its severity.
type Finding struct {
	Severity Severity `json:"severity"`
	Rule     Rule     `json:"rule"`
	problem.Problem
}

// String returns "web.yaml:12: error: Service default/web: spec.ports[0].port: message".
func (f Finding) String() string {
	rest := f.Problem
	rest.Where = ""
	return problem.Problem{Where: f.Where, Object: string(f.Severity), Message: rest.String()}.String()
}

// Position returns the file and the line of a finding; 0 without one.
func (f Finding) Position() (file string, line int) {
	if i := strings.LastIndexByte(f.Where, ':'); i >= 0 {
		if line, err := strconv.Atoi(f.Where[i+1:]); err == nil {
			return f.Where[:i], line
		}
	}
	return f.Where, 0
}

// Node is an agent that will read the manifests.
type Node struct {
	// Name is that of its configuration file.
	Name      string
	Labels    map[string]string
	DataPlane string
}

// Config configures a check.
type Config struct {
	manifest.Reading
	// DataPlanes are those that must support the frontends: xdp, ipvs.
	DataPlanes []string
	// Nodes are the agents; none if they are not known: node selectors then select a node.
	Nodes []Node
	// Peers returns the problems of the BGPPeers of one node. It may be nil.
	Peers func([]crd.Peer) []problem.Problem
}

// Run returns all findings, sorted by file and line. An error is about a path that cannot
// be read.
func Run(c Config) ([]Finding, error) {
	read, err := manifest.ReadOnce(c.Reading)
	if err != nil {
		return nil, err
	}
	k := &checker{Config: c, read: read, seen: map[Finding]bool{}}
	k.all(RuleInvalid, read.Problems)
	for _, p := range read.Problems {
		k.rejected = append(k.rejected, p.Object)
	}
	slices.Sort(k.rejected)
	k.routing()
	k.pools()
	if c.Cluster {
		k.networks()
	}
	slices.SortStableFunc(k.findings, compare)
	return k.findings, nil
}

func compare(a, b Finding) int {
	fileA, lineA := a.Position()
	fileB, lineB := b.Position()
	return cmp.Or(cmp.Compare(fileA, fileB), cmp.Compare(lineA, lineB))
}

// checker collects findings, each once.
type checker struct {
	Config
	read     *manifest.Once
	findings []Finding
	plans    []*plan.Plan // of the nodes
	rejected []string     // objects with problems, sorted
	seen     map[Finding]bool
}

func (k *checker) add(s Severity, r Rule, p problem.Problem) {
	f := Finding{s, r, p}
	if !k.seen[f] {
		k.seen[f] = true
		k.findings = append(k.findings, f)
	}
}

// all adds problems that an agent reports.
func (k *checker) all(r Rule, problems []problem.Problem) {
	for _, p := range problems {
		k.add(Error, r, p)
	}
}
