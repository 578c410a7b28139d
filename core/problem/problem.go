// Package problem has the type in which refused input is reported. Who refuses input
// finds and words the problems; agent/status shows them.
package problem

// Problem is something in the input that was refused, by name, and how to fix it.
type Problem struct {
	// Object is what was refused: "Service default/web" or "EndpointSlice
	// default/web-1"; empty where the text did not even name one.
	Object string `json:"object,omitempty"`
	// Where is "file:line"; empty for objects that come from an API.
	Where string `json:"where,omitempty"`
	// Field is the path of the refused field: "spec.ports[0].port".
	Field string `json:"field,omitempty"`
	// Message says what is wrong and what would be right.
	Message string `json:"message"`
}

// String gives "web.yaml:12: Service default/web: spec.ports[0].port: message".
func (p Problem) String() string {
	s := ""
	for _, part := range []string{p.Where, p.Object, p.Field} {
		if part != "" {
			s += part + ": "
		}
	}
	return s + p.Message
}
