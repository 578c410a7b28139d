// Package pods holds nothing but tests of the whole: balancers that live in pods,
// on which restarts, changes and wrong input are tried under load.
package pods
