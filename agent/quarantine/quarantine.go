// Package quarantine decides whether an operator may drain a backend: it must exist, and
// must not be the last one without saying so. Writing the order belongs to the commands;
// its effect is up to core/plan.
package quarantine

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/suggest"
)

// Use is a backend of a frontend.
type Use struct {
	Service service.ID
	// Frontend is the frontend, or the port, within the Service.
	Frontend string
	Backend  service.Backend
	// Takes means that it takes new flows.
	Takes bool
}

// Check completes an order with the name of the backend. It fails if no Service has the
// backend or, without force, if one would have no other that takes new flows.
func Check(q *service.Quarantine, uses []Use, force bool) error {
	var its []Use
	for _, u := range uses {
		if q.Covers(u.Service, u.Backend) {
			its = append(its, u)
		}
	}
	if len(its) == 0 {
		return unknown(q, uses)
	}
	if alone := onlyIn(its, q, uses); len(alone) > 0 && !force {
		return fmt.Errorf("%s is the last backend that takes new flows of Service %s: start another, or drain it with --force", q.Endpoint(), strings.Join(alone, ", "))
	}
	q.Backend = its[0].Backend.Name
	if slices.ContainsFunc(its, func(u Use) bool { return u.Backend.Name != q.Backend }) {
		q.Backend = "" // it has several names
	}
	return nil
}

// onlyIn returns the Services of which a frontend would have no other backend.
func onlyIn(its []Use, q *service.Quarantine, uses []Use) (alone []string) {
	for _, u := range its {
		other := func(o Use) bool {
			return o.Service == u.Service && o.Frontend == u.Frontend && o.Takes && !q.Covers(o.Service, o.Backend)
		}
		if id := u.Service.String(); u.Takes && !slices.Contains(alone, id) && !slices.ContainsFunc(uses, other) {
			alone = append(alone, id)
		}
	}
	return alone
}

// maxKnown limits the number of addresses among which to search for a similar one.
const maxKnown = 5000

func unknown(q *service.Quarantine, uses []Use) error {
	var known []string
	for _, u := range uses[:min(len(uses), maxKnown)] {
		if q.Service != (service.ID{}) && q.Service != u.Service {
			continue
		}
		text := u.Backend.Addr.Addr().String()
		if q.Port != 0 {
			text = u.Backend.Addr.String()
		}
		known = append(known, text)
	}
	slices.Sort(known)
	of := ""
	if q.Service != (service.ID{}) {
		of = " of Service " + q.Service.String()
	}
	return fmt.Errorf("unknown backend %s%s%s: see fairlead get backends", q.Endpoint(), of, suggest.DidYouMean(q.Endpoint(), slices.Compact(known)))
}

// Operator returns who runs this process, as "alice on admin1".
func Operator() string {
	name := os.Getenv("SUDO_USER")
	if name == "" {
		name = strconv.Itoa(os.Getuid())
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	if host, err := os.Hostname(); err == nil {
		name += " on " + host
	}
	return name
}
