package vdn

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what sort of no a Problem is.
type Kind int

// The kinds.
const (
	// Invalid: the object is wrong by itself.
	Invalid Kind = iota
	// Conflict: it is right, but does not go with what is there.
	Conflict
	// NotFound: what it is about is not there.
	NotFound
	// Changed: what it is about is no longer what the asker saw.
	Changed
)

// Problem says what is wrong with which field of which object, and the mend.
type Problem struct {
	Kind Kind
	// Object is "network science"; Field is "subnets[0].prefix", or empty where the
	// whole object is meant.
	Object, Field, Text string
}

func (p *Problem) Error() string {
	if p.Field == "" {
		return p.Object + ": " + p.Text
	}
	return p.Object + ", " + p.Field + ": " + p.Text
}

// Problems are all that is wrong with one object.
type Problems []*Problem

func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i, one := range p {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap gives each to errors.As.
func (p Problems) Unwrap() []error {
	all := make([]error, len(p))
	for i, one := range p {
		all[i] = one
	}
	return all
}

// KindOf says what sort of no an error is; false for one that is no Problem.
func KindOf(err error) (Kind, bool) {
	var p *Problem
	if errors.As(err, &p) {
		return p.Kind, true
	}
	return 0, false
}

// checker gathers what is wrong with one object.
type checker struct {
	object string
	found  Problems
}

func (c *checker) add(field, format string, args ...any) {
	c.found = append(c.found, &Problem{Object: c.object, Field: field, Text: fmt.Sprintf(format, args...)})
}

// err is nil where nothing is wrong.
func (c *checker) err() error {
	if len(c.found) == 0 {
		return nil
	}
	return c.found
}

// conflict makes a Problem of its kind.
func conflict(object, field, format string, args ...any) *Problem {
	return &Problem{Conflict, object, field, fmt.Sprintf(format, args...)}
}

// Missing is the Problem of what is not there.
func Missing(object, mend string) *Problem {
	return &Problem{Kind: NotFound, Object: object, Text: "not there: " + mend}
}
