package claim

// Curve is a series' means over the seeds.
type Curve struct {
	Name string `json:"name"`
	// Aside is what claims look at, but the picture does not show.
	Aside  bool    `json:"aside,omitempty"`
	Points []Point `json:"points"`
}

// Point is a point of a curve.
type Point struct {
	X float64 `json:"x"`
	Estimate
}
