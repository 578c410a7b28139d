// Package hierarchy contains only the end-to-end test of load balancers that are backends
// of a load balancer, as in the LVS paper, with the real programs.
package hierarchy
