package route

// Mode is a way to advertise routes.
type Mode string

// Modes. ModeAny means all that the node has.
const (
	ModeAny    Mode = ""
	ModeBGP    Mode = "BGP"
	ModeLayer2 Mode = "Layer2"
	ModeCloud  Mode = "Cloud"
)

// With returns the mode of a route requested with both modes: all if they differ.
func (m Mode) With(o Mode) Mode {
	if m == o {
		return m
	}
	return ModeAny
}

// Has reports whether routes of mode m are advertised by mode o.
func (m Mode) Has(o Mode) bool { return m == ModeAny || m == o }
