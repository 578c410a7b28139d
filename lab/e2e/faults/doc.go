// Package faults contains only end-to-end tests of what operators look at: each of many faults
// is found with at most two commands, and named in the summary of a sysdump; nodes that
// disagree are found by the verdict.
package faults
