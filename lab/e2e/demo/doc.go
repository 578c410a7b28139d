// Package demo holds nothing but tests of the whole: the commands that build a
// network of their own, in the size that a test has time for.
package demo
