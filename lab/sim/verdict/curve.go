package verdict

// Curve contains a series' means over the seeds.
type Curve struct {
	Name string `json:"name"`
	// Aside is set if claims use the curve, but the picture does not show it.
	Aside  bool    `json:"aside,omitempty"`
	Points []Point `json:"points"`
}

// Point is a point of a curve.
type Point struct {
	X float64 `json:"x"`
	Estimate
}
