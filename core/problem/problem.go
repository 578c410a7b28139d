// Package problem defines the type in which rejected input is reported. The code that
// rejects input creates the problems; agent/status displays them.
package problem

// Problem names something in the input that was rejected, and how to fix it.
type Problem struct {
	// Object is the object: "Service default/web". It is empty if the input does not even
	// name an object.
	Object string `json:"object,omitempty"`
	// Where is "file:line"; empty for objects of the API server.
	Where string `json:"where,omitempty"`
	// Field is the path of the field: "spec.ports[0].port".
	Field string `json:"field,omitempty"`
	// Message is what is wrong, and what is valid.
	Message string `json:"message"`
	// Failure means that the input is valid, but something failed and is retried.
	Failure bool `json:"failure,omitempty"`
}

// Failed returns the problem that something failed, which is retried.
func Failed(object, message string) Problem {
	return Problem{Object: object, Message: message, Failure: true}
}

// String returns "web.yaml:12: Service default/web: spec.ports[0].port: message".
func (p Problem) String() string {
	s := ""
	for _, part := range []string{p.Where, p.Object, p.Field} {
		if part != "" {
			s += part + ": "
		}
	}
	return s + p.Message
}
