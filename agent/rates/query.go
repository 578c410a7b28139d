package rates

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Path is where an agent serves a Report.
const Path = "/v1/rates"

// View is what the rows of a Report are.
type View string

// Views. Node has no rows.
const (
	Services  View = "services"
	Frontends View = "frontends"
	Backends  View = "backends"
	Node      View = "node"
)

// Views lists the views.
var Views = []View{Services, Frontends, Backends, Node}

// Column is what rows are sorted by: by rate, the highest first; by State, the worst first;
// by Up, those with the smallest share of backends that are up first.
type Column string

// Columns.
const (
	ByName    Column = "name"
	ByState   Column = "state"
	ByUp      Column = "up"
	ByPackets Column = "packets"
	ByBits    Column = "bits"
	ByFlows   Column = "flows"
)

// Columns lists the columns.
var Columns = []Column{ByName, ByState, ByUp, ByPackets, ByBits, ByFlows}

// Limits of a Query.
const (
	DefaultLimit    = 50
	MaxLimit        = 1000
	DefaultInterval = time.Second
	MinInterval     = 200 * time.Millisecond
	MaxInterval     = time.Minute
	maxText         = 1024
)

// Query selects and sorts rows.
type Query struct {
	View View
	Sort Column
	// Reverse reverses the order.
	Reverse bool
	// Limit is the maximum number of rows.
	Limit int
	// Filter selects rows with this text in a name, an address, a node or a state. Case
	// is ignored.
	Filter string
	// Service, "namespace/name", and Frontend, "TCP 10.1.1.1:80", select what belongs to
	// them, Backend ("172.16.1.10:80") a backend in each of its frontends.
	Service, Frontend, Backend string
	// Interval is the time between two readings.
	Interval time.Duration
}

// Default returns a Query for the busiest rows of a view.
func Default(v View) Query {
	return Query{View: v, Sort: ByPackets, Limit: DefaultLimit, Interval: DefaultInterval}
}

// Values returns the parameters of a request.
func (q Query) Values() url.Values {
	v := url.Values{"view": {string(q.View)}, "sort": {string(q.Sort)}, "limit": {strconv.Itoa(q.Limit)}, "interval": {q.Interval.String()}}
	for name, text := range map[string]string{"filter": q.Filter, "service": q.Service, "frontend": q.Frontend, "backend": q.Backend} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if q.Reverse {
		v.Set("reverse", "true")
	}
	return v
}

// ParseQuery is the inverse of Values. What is not given has its default.
func ParseQuery(v url.Values) (Query, error) {
	q := Default(View(cmp.Or(v.Get("view"), string(Services))))
	q.Sort = Column(cmp.Or(v.Get("sort"), string(q.Sort)))
	q.Reverse = v.Get("reverse") == "true"
	q.Filter, q.Service, q.Frontend, q.Backend = v.Get("filter"), v.Get("service"), v.Get("frontend"), v.Get("backend")
	var err error
	if text := v.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil {
			return q, fmt.Errorf("limit: %q is not a number", text)
		}
	}
	if text := v.Get("interval"); text != "" {
		if q.Interval, err = time.ParseDuration(text); err != nil {
			return q, fmt.Errorf("interval: %q is not a duration such as 1s", text)
		}
	}
	return q, q.Check()
}

// Check rejects what cannot be answered.
func (q Query) Check() error {
	switch {
	case !slices.Contains(Views, q.View):
		return fmt.Errorf("view: %q is none of %v", q.View, Views)
	case !slices.Contains(Columns, q.Sort):
		return fmt.Errorf("sort: %q is none of %v", q.Sort, Columns)
	case q.Limit < 0 || q.Limit > MaxLimit:
		return fmt.Errorf("limit: %d is not between 0 and %d", q.Limit, MaxLimit)
	case q.Interval < MinInterval || q.Interval > MaxInterval:
		return fmt.Errorf("interval: %s is not between %s and %s", q.Interval, MinInterval, MaxInterval)
	case len(q.Filter) > maxText:
		return fmt.Errorf("filter: longer than %d bytes", maxText)
	}
	return nil
}
