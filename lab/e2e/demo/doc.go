// Package demo contains only end-to-end tests: the commands that create their own
// network, in a size that a test has time for.
package demo
