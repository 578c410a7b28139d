package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
)

// frontendOf is a frontend with its Service.
type frontendOf struct {
	status.Frontend
	service *status.Service
}

// settling is how long load balancers may need to notice the same change of a backend's
// health: each probes at its own time.
const settling = 15 * time.Second

// frontends compares frontends, their settings, backends and tables.
func (c *comparison) frontends() {
	if len(c.balancers) < 2 {
		return
	}
	at := make([]map[string]frontendOf, len(c.balancers))
	var keys []string
	for i, a := range c.balancers {
		at[i] = map[string]frontendOf{}
		for j := range a.Services {
			for _, f := range a.Services[j].Frontends {
				if f.State == plan.Conflict { // the key is another Service's
					continue
				}
				keys = append(keys, f.Key())
				at[i][f.Key()] = frontendOf{f, &a.Services[j]}
			}
		}
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		c.frontend(key, at)
	}
}

// frontend compares one frontend on the load balancers that should serve it.
func (c *comparison) frontend(key string, at []map[string]frontendOf) {
	of := map[string]frontendOf{}
	var nodes []Answer
	for i, a := range c.balancers {
		f, known := at[i][key]
		if known && f.State.Elsewhere() {
			continue
		}
		nodes = append(nodes, a)
		if known {
			of[a.Name] = f
		}
	}
	differs := false
	odd(nodes, func(a Answer) string { return presence(of, a) }, func(a Answer, has, others string) {
		differs = true
		if slices.ContainsFunc(nodes, func(a Answer) bool { return slices.ContainsFunc(of[a.Name].Backends, a.probes) }) {
			return
		}
		c.add(Disagreement{Kind: Frontend, Node: a.Name, Object: key, Has: has, Others: others, Cause: absence(a, of, key), Fix: "fairlead explain service on the node"})
	})
	nodes = slices.DeleteFunc(nodes, func(a Answer) bool { return !of[a.Name].State.Programmed() })
	odd(nodes, func(a Answer) string { return settings(of[a.Name]) }, func(a Answer, has, others string) {
		differs = true
		c.add(Disagreement{Kind: Frontend, Node: a.Name, Object: key, Has: has, Others: others, Cause: staleness(of[a.Name]), Fix: "use the same manifests on all load balancers"})
	})
	if c.backends(key, nodes, of) || differs {
		return
	}
	nodes = slices.DeleteFunc(nodes, func(a Answer) bool { return of[a.Name].Table == "" })
	odd(nodes, func(a Answer) string { return of[a.Name].Table }, func(a Answer, has, others string) {
		c.add(Disagreement{Kind: Table, Node: a.Name, Object: key, Has: has, Others: others,
			Cause: "the Maglev tables differ although the backends are the same", Fix: "restart the agent, and report this as a bug with a sysdump"})
	})
}

// presence says whether a load balancer has a frontend in its data plane.
func presence(of map[string]frontendOf, a Answer) string {
	f, known := of[a.Name]
	switch {
	case !known:
		return "unknown"
	case f.State.Programmed():
		return "programmed"
	}
	return string(f.State)
}

// absence is the likely cause for which a load balancer does not serve a frontend.
func absence(a Answer, of map[string]frontendOf, key string) string {
	if f, known := of[a.Name]; known {
		return f.Reason
	}
	for _, f := range of {
		for _, p := range a.Problems {
			if p.Object == "Service "+f.service.ID || p.Object == "Services" {
				return p.String()
			}
		}
	}
	return "its manifests, or what it has read of the cluster, lack the Service"
}

// settings are the settings of a frontend that decide which backend is selected, and how
// packets reach it.
func settings(f frontendOf) string {
	s := fmt.Sprintf("%s, %s", f.service.ForwardingMode, f.service.Scheduler)
	if f.service.Scheduler == service.Maglev {
		s += fmt.Sprintf(" %d", f.service.MaglevTableSize)
	}
	return s
}

func staleness(f frontendOf) string {
	if f.service.StaleSince.IsZero() {
		return "its manifest is another version"
	}
	return "it rejects the current manifest, and uses an earlier version (fairlead status on the node)"
}

// backends compares the backends of a frontend, and reports whether they differ.
func (c *comparison) backends(key string, nodes []Answer, of map[string]frontendOf) (differs bool) {
	at := map[string]map[string]status.Backend{} // by node and address
	var addresses []string
	for _, a := range nodes {
		at[a.Name] = map[string]status.Backend{}
		for _, b := range of[a.Name].Backends {
			at[a.Name][b.Address.String()] = b
			addresses = append(addresses, b.Address.String())
		}
	}
	slices.Sort(addresses)
	for _, address := range slices.Compact(addresses) {
		odd(nodes, func(a Answer) string { return use(at[a.Name], address) }, func(a Answer, has, others string) {
			differs = true
			if slices.ContainsFunc(nodes, func(a Answer) bool { return a.probes(at[a.Name][address]) }) {
				return
			}
			cause := illness(nodes, at, address)
			if cause == "" {
				cause = staleness(of[a.Name])
			}
			c.add(Disagreement{Kind: Backend, Node: a.Name, Object: address + " of " + key, Has: has, Others: others, Cause: cause,
				Fix: "fairlead explain backend " + address + " on the node"})
		})
	}
	return differs
}

// use is how a load balancer uses a backend for new flows. Whether it keeps earlier ones depends
// on whether it ever had any.
func use(of map[string]status.Backend, address string) string {
	b, known := of[address]
	switch {
	case !known:
		return "unknown"
	case !b.InService, b.ProgrammedWeight == 0:
		return "no new flows"
	}
	return fmt.Sprintf("weight %d", b.ProgrammedWeight)
}

// probes reports whether a backend's health changed so recently that other load balancers may
// not have noticed.
func (a Answer) probes(b status.Backend) bool {
	return !b.Since.IsZero() && a.Time.Sub(b.Since) < settling
}

// illness says which load balancers consider a backend unhealthy.
func illness(nodes []Answer, at map[string]map[string]status.Backend, address string) string {
	var words []string
	healthy := false
	for _, a := range nodes {
		switch b := at[a.Name][address]; b.Health {
		case "down", "removed":
			words = append(words, strings.TrimSuffix(fmt.Sprintf("%s considers it %s: %s", a.Name, b.Health, b.LastError), ": "))
		case "up":
			healthy = true
		}
	}
	if !healthy {
		return ""
	}
	return strings.Join(words, "; ")
}
