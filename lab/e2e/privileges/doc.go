// Package privileges contains only tests of the Linux capabilities that roles need: the
// real binary does each role's work with exactly those that internal/privilege lists, and
// without any one of them fails or reports what it lacks.
package privileges
