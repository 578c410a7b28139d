package ipvs

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

var _ dataplane.Reader = (*DataPlane)(nil)

// Read implements dataplane.Reader. Source ranges are those that this process has
// written, because their rules can only be read all at once.
func (d *DataPlane) Read(k service.Key) (*dataplane.Programmed, error) {
	found, err := d.recorded(k)
	if found == nil || err != nil {
		return nil, err
	}
	p := &dataplane.Programmed{Counters: dataplane.FrontendCounters{Key: k, Backends: map[string]dataplane.Counts{}}}
	r := record{virtual: found.virtual, allow: found.allow, deny: found.deny}
	err = d.services.ask(aboutService(cmdGetService, 0, r.serviceID), func(reply []byte) error {
		v, l, err := readService(reply)
		r.virtual, p.Counters.Total = v, l.Counts
		return err
	})
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ipvs: read service %s: %w", k, err)
	}
	err = d.eachServer(r.serviceID, func(s server, l load) {
		r.servers = append(r.servers, s)
		p.Counters.Backends[s.addr.String()] = l.Counts
	})
	slices.SortFunc(r.servers, compareServers)
	p.Frontend = frontendOf(r, k)
	return p, err
}

// recorded returns a copy of a frontend's record, or nil.
func (d *DataPlane) recorded(k service.Key) (*record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fresh(); err != nil {
		return nil, err
	}
	r := d.programmed[k]
	if r == nil {
		return nil, nil
	}
	found := *r
	return &found, nil
}
