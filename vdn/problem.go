package vdn

import (
	"errors"
	"fmt"
	"strings"
)

// Kind classifies a Problem.
type Kind int

// Problem kinds.
const (
	// Invalid: the object itself is invalid.
	Invalid Kind = iota
	// Conflict: the object is valid but conflicts with existing state.
	Conflict
	// NotFound: the object does not exist.
	NotFound
	// Changed: the object has changed since the client read it.
	Changed
)

// Problem describes what is wrong with which field of which object, and how to fix it.
type Problem struct {
	Kind Kind
	// Object is "network science"; Field is "subnets[0].cidr", or empty for the entire
	// object.
	Object, Field, Text string
}

func (p *Problem) Error() string {
	if p.Field == "" {
		return p.Object + ": " + p.Text
	}
	return p.Object + ", " + p.Field + ": " + p.Text
}

// Problems are all problems of one object.
type Problems []*Problem

func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i, one := range p {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap exposes each problem to errors.As.
func (p Problems) Unwrap() []error {
	all := make([]error, len(p))
	for i, one := range p {
		all[i] = one
	}
	return all
}

// KindOf returns the kind of an error; false if it is not a Problem.
func KindOf(err error) (Kind, bool) {
	var p *Problem
	if errors.As(err, &p) {
		return p.Kind, true
	}
	return 0, false
}

// checker collects the problems of one object.
type checker struct {
	object string
	found  Problems
}

func (c *checker) add(field, format string, args ...any) {
	c.found = append(c.found, &Problem{Object: c.object, Field: field, Text: fmt.Sprintf(format, args...)})
}

// err returns nil if there are no problems.
func (c *checker) err() error {
	if len(c.found) == 0 {
		return nil
	}
	return c.found
}

// conflict returns a Problem of kind Conflict.
func conflict(object, field, format string, args ...any) *Problem {
	return &Problem{Conflict, object, field, fmt.Sprintf(format, args...)}
}

// Missing returns a Problem for an object that does not exist.
func Missing(object, fix string) *Problem {
	return &Problem{Kind: NotFound, Object: object, Text: "not found: " + fix}
}
