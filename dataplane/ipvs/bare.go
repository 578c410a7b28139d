package ipvs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
)

// Bare gives calls that write f of one port into the kernel, and take it out, by
// netlink alone: one for the service, each server and the VIP, composed before
// they are timed. It is what Upsert is measured beside; the data plane takes no
// notice of it.
func (d *DataPlane) Bare(f desired.Frontend) (add, remove func() error) {
	want, route := recordOf(f, 0, d.config.GUEPort), d.routeTo(f.VIP)
	messages, gone := changes(nil, want), aboutService(cmdDelService, unix.NLM_F_ACK, want.serviceID)
	call := func(m message) error {
		failed, err := d.socket.do([]message{m})
		return errors.Join(err, failed[0])
	}
	add = func() error {
		for _, m := range messages {
			if err := call(m); err != nil {
				return err
			}
		}
		return d.routes.RouteAdd(route)
	}
	remove = func() error { return errors.Join(call(gone), d.routes.RouteDel(route)) }
	return add, remove
}
