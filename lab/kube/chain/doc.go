// Package chain is nothing but tests of the whole in Kubernetes: a real API
// server, agents and controller as processes, and a router that is BIRD, from a
// Service to a client's answers, and whatever may fail in between.
package chain
