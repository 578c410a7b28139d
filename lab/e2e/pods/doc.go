// Package pods contains only end-to-end tests: load balancers in pods, with restarts,
// changes and invalid input under load.
package pods
