// Package secrets has nothing but a test that the real binary keeps what it is
// trusted with: no password, token or key shows in a log, a status, a metric or the
// list of processes.
package secrets
