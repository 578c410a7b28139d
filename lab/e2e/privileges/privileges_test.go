package privileges

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/lab/testkit"
)

// story is a role's work.
type story struct {
	// with are additional roles of the process.
	with []string
	// run does the work with these capabilities, and returns the process's output as an
	// error if that fails.
	run func(p *place, caps privilege.Set) error
}

var stories = map[string]story{
	privilege.Balancer:       {run: balancer},
	privilege.Takeover:       {[]string{privilege.Balancer}, takeover},
	privilege.BalancerLayer2: {[]string{privilege.Balancer}, layer2},
	privilege.OwnBPFFS:       {[]string{privilege.Balancer}, ownBPFFS},
	privilege.DSR:            {run: server},
	privilege.Proxy:          {run: serviceProxy},
	privilege.Router:         {run: router},
	privilege.RouterListens:  {[]string{privilege.Router}, routerListens},
	privilege.Reflector:      {run: reflector},
	privilege.Controller:     {run: controller},
	privilege.VDN:            {run: vdn},
	privilege.VDNNode:        {run: vdnNode},
	privilege.Cleanup:        {run: cleanup},
	privilege.CleanupVDN:     {[]string{privilege.Cleanup}, cleanupVDN},
	privilege.CNI:            {run: plugin},
}

// elsewhere are roles whose test needs another kernel: dataplane/ipvs has it.
var elsewhere = []string{privilege.BalancerIPVS}

// TestRoles runs each role with exactly the capabilities in the table, and then without
// each of them. The first must work and the others must not, and their errors must name
// what is missing.
func TestRoles(t *testing.T) {
	testkit.WatchSources(t)
	for _, role := range privilege.Table {
		s, ok := stories[role.Name]
		if !ok {
			if !slices.Contains(elsewhere, role.Name) {
				t.Errorf("role %s has no story", role.Name)
			}
			continue
		}
		t.Run(strings.ReplaceAll(role.Name, " ", "-"), func(t *testing.T) { s.prove(t, role.Name) })
	}
}

func (s story) prove(t *testing.T, name string) {
	needs := privilege.For(append(s.with, name)...)
	var all privilege.Set
	for _, n := range needs {
		all |= 1 << n.Capability
	}
	t.Run("all", func(t *testing.T) {
		if err := s.run(newPlace(t), all); err != nil {
			t.Errorf("with %s: %v", privilege.Words(needs), err)
		}
	})
	for _, n := range needs {
		t.Run("without "+n.Capability.Short(), func(t *testing.T) {
			err := s.run(newPlace(t), all&^(1<<n.Capability))
			switch {
			case err == nil:
				t.Errorf("it works without %s, which the table lists as required", n.Capability)
			case !strings.Contains(err.Error(), n.Capability.String()):
				t.Errorf("the error does not name %s: %v", n.Capability, err)
			}
		})
	}
}
