package ipvs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
)

// Bare returns functions that add and remove f, with a single port, in the kernel with
// netlink calls only: one each for the service, each backend and the VIP, prepared in
// advance. Upsert is measured against them. The data plane's own state is not affected.
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
