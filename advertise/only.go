package advertise

import "github.com/fairlead/fairlead/core/route"

// Only returns an Announcer that passes on only the routes of a mode.
func Only(m route.Mode, a Announcer) Announcer { return only{a, m} }

type only struct {
	Announcer
	mode route.Mode
}

// Set omits routes of other modes.
func (o only) Set(routes []route.Route) error {
	var its []route.Route
	for _, r := range routes {
		if r.Mode.Has(o.mode) {
			r.Mode = route.ModeAny // not needed any more
			its = append(its, r)
		}
	}
	return o.Announcer.Set(its)
}
