// Package problem defines the type in which rejected input is reported. The code that
// rejects input creates the problems; agent/status displays them.
package problem

import (
	"fmt"
	"strings"
)

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

// alike is the number of identical problems that are still listed individually.
const alike = 3

// Lines formats problems, one per line. Identical problems of many objects share a
// line.
func Lines(problems []Problem) (lines []string) {
	type says struct{ field, message string }
	count := map[says]int{}
	for _, p := range problems {
		count[says{p.Field, p.Message}]++
	}
	for _, p := range problems {
		switch n := count[says{p.Field, p.Message}]; {
		case n == 0: // covered by the first line
		case n <= alike:
			lines = append(lines, p.String())
		default:
			count[says{p.Field, p.Message}] = 0
			first := strings.TrimSuffix(Problem{Where: p.Where, Object: p.Object}.String(), ": ")
			same := Problem{Field: p.Field, Message: p.Message}
			lines = append(lines, fmt.Sprintf("%s and %d more: %s", first, n-1, same))
		}
	}
	return lines
}
