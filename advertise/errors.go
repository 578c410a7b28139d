package advertise

import (
	"fmt"
	"net/netip"
)

// RouteError is why a prefix could not be announced or withdrawn.
type RouteError struct {
	Prefix netip.Prefix
	Err    error
}

// Error names the prefix.
func (e *RouteError) Error() string { return fmt.Sprintf("%s: %v", e.Prefix, e.Err) }

// Unwrap gives the cause.
func (e *RouteError) Unwrap() error { return e.Err }

// RouteErrors gives the prefixes that the error of a Set is about, and what of it is
// about none.
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
