// Package agents holds nothing but tests of the whole: balancers on nodes, and
// what agents are asked and told by people: drains, readiness, routes, traces.
package agents
