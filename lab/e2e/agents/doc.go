// Package agents contains only end-to-end tests: load balancers on nodes, and the
// commands of operators: drains, readiness, routes, traces.
package agents
