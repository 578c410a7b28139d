// Package security contains only tests of the statements in docs/security.md about the
// real binary: on which ports it listens, and that no password, token or key appears in a
// log, a status, a metric or the list of processes.
package security
