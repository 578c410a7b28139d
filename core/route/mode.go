package route

// Mode is a way to make routes known.
type Mode string

// The ways; ModeAny is for all that a node has.
const (
	ModeAny    Mode = ""
	ModeBGP    Mode = "BGP"
	ModeLayer2 Mode = "Layer2"
	ModeCloud  Mode = "Cloud"
)

// With gives the way of a route that is wished for in both: where they differ, all.
func (m Mode) With(o Mode) Mode {
	if m == o {
		return m
	}
	return ModeAny
}

// Has says whether routes of this way are made known in that one.
func (m Mode) Has(o Mode) bool { return m == ModeAny || m == o }
