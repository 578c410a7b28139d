// Package security has nothing but tests of what docs/security.md says of the real
// binary: on which ports it listens, and that no password, token or key shows in a
// log, a status, a metric or the list of processes.
package security
