package advertise

import "github.com/fairlead/fairlead/core/route"

// Only gives an Announcer the routes that are for its way.
func Only(m route.Mode, a Announcer) Announcer { return only{a, m} }

type only struct {
	Announcer
	mode route.Mode
}

// Set leaves out what is for another way.
func (o only) Set(routes []route.Route) error {
	var its []route.Route
	for _, r := range routes {
		if r.Mode.Has(o.mode) {
			r.Mode = route.ModeAny // which says nothing here
			its = append(its, r)
		}
	}
	return o.Announcer.Set(its)
}
