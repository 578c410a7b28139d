// Package chain contains only end-to-end tests in Kubernetes: a real API server, agents
// and controller as processes, and BIRD as the router, from a Service to a client's
// answers, with failures in between.
package chain
