package advertise

import (
	"fmt"
	"net/netip"
)

// RouteError is why a prefix could not be advertised or withdrawn.
type RouteError struct {
	Prefix netip.Prefix
	Err    error
}

// Error includes the prefix.
func (e *RouteError) Error() string { return fmt.Sprintf("%s: %v", e.Prefix, e.Err) }

// Unwrap returns the cause.
func (e *RouteError) Unwrap() error { return e.Err }

// RouteErrors splits the error of a Set into the errors of single prefixes and the rest.
func RouteErrors(err error) (routes map[netip.Prefix]error, rest []error) {
	routes = map[netip.Prefix]error{}
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) {
		case nil:
		case *RouteError:
			routes[e.Prefix] = e.Err
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				walk(one)
			}
		default:
			rest = append(rest, err)
		}
	}
	walk(err)
	return routes, rest
}
