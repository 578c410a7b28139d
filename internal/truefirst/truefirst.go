// Package truefirst orders booleans, which package cmp does not.
package truefirst

// Compare is like cmp.Compare; true is less than false.
func Compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
