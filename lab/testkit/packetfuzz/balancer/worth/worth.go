// Package worth orders the places of the flow table's sets by their value.
package worth

// Worth is the value of a place; the lowest is taken.
type Worth struct {
	Kept, Strong, Far bool
	Left              int64
	Order             int
}

// Less reports whether a place is taken before another one.
func (a Worth) Less(b Worth) bool {
	switch {
	case a.Kept != b.Kept:
		return b.Kept
	case a.Strong != b.Strong:
		return b.Strong
	case a.Far != b.Far:
		return b.Far
	case a.Left != b.Left:
		return a.Left < b.Left
	}
	return a.Order < b.Order
}
