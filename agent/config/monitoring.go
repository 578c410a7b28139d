package config

// Monitoring contains the listen addresses for monitoring systems. Empty ones are disabled.
type Monitoring struct {
	// Metrics serves /metrics, /livez and /readyz.
	Metrics string
	// Probe serves only /livez and /readyz.
	Probe string
}
