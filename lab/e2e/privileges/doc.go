// Package privileges has nothing but tests of what the roles need of Linux
// capabilities: the real binary does each role's work with exactly those that
// internal/privilege lists, and fails or says what it lacks without any one of
// them.
package privileges
