package ipvs

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Upsert implements dataplane.DataPlane. It writes the difference to the kernel's state
// at the last List, Open or failure.
func (d *DataPlane) Upsert(f desired.Frontend) error {
	if err := d.config.check(f); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fresh(); err != nil {
		return err
	}
	mark, err := d.markOf(f.Key)
	if err != nil {
		return err
	}
	want := recordOf(f, mark, d.config.GUEPort)
	if d.foreign[want.serviceID] {
		return fmt.Errorf("%s: IPVS already has a service with this key that another program created: remove it (ipvsadm -D), or use another address or port", f.Key)
	}
	if err := d.write(f.Key, want); err != nil {
		d.stale = true
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	return nil
}

// write updates kernel and memory to want: first the prerequisites for forwarding, then
// the service, then what directs packets to it. Packets that a containing range received
// before use the range's rules until then.
func (d *DataPlane) write(k service.Key, want record) error {
	have := d.programmed[k]
	d.keep(k, &want)
	d.vipOf(k)
	if !d.inRange(k) {
		if err := d.writeGuards(); err != nil {
			return err
		}
	}
	if err := d.writeNAT(); err != nil {
		return err
	}
	if err := d.apply(changes(have, want)); err != nil {
		return err
	}
	if err := d.holdVIP(k); err != nil {
		return err
	}
	return d.writeMangle()
}

// inRange reports whether packets to k would go to another frontend without it.
func (d *DataPlane) inRange(k service.Key) bool {
	return slices.ContainsFunc(d.vipOf(k).keys, func(o service.Key) bool {
		return o != k && (o.Whole() || o.Range() && o.Protocol == k.Protocol && o.Port <= k.Port && max(k.Port, k.Last) <= o.Last)
	})
}

// apply executes messages. Deleting an absent object is not an error.
func (d *DataPlane) apply(messages []message) error {
	failed, err := d.socket.do(messages)
	for i, why := range failed {
		command := messages[i][unix.NLMSG_HDRLEN]
		deletes := command == cmdDelDest || command == cmdDelService
		if gone := errors.Is(why, unix.ESRCH) || errors.Is(why, unix.ENOENT); !deletes || !gone {
			err = errors.Join(err, fmt.Errorf("ipvs: %s: %w", commandNames[command], why))
		}
	}
	return err
}

var commandNames = map[byte]string{
	cmdNewService: "add the service", cmdSetService: "change the service", cmdDelService: "remove the service",
	cmdNewDest: "add a server", cmdSetDest: "change a server", cmdDelDest: "remove a server",
}

// Delete implements dataplane.DataPlane.
func (d *DataPlane) Delete(k service.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fresh(); err != nil {
		return err
	}
	r := d.programmed[k]
	if r == nil {
		return nil
	}
	if err := d.remove(k, r); err != nil {
		d.stale = true
		return fmt.Errorf("%s: %w", k, err)
	}
	return nil
}

// remove removes a frontend: first what directs packets to it, then the service.
func (d *DataPlane) remove(k service.Key, r *record) error {
	d.forget(k)
	delete(d.marks, r.mark)
	rules := d.writeMarks
	if d.inRange(k) {
		rules = d.writeMangle
	}
	last := d.leaveVIP(k)
	if err := rules(); err != nil {
		return err
	}
	if err := d.apply([]message{aboutService(cmdDelService, 0, r.serviceID)}); err != nil {
		return err
	}
	if last {
		if err := d.dropVIP(k.VIP); err != nil {
			return err
		}
	}
	return errors.Join(d.writeGuards(), d.writeNAT())
}

// fresh reads the kernel again if a call has failed.
func (d *DataPlane) fresh() error {
	if !d.stale {
		return nil
	}
	return d.learn()
}

// Marks are in a reserved space of 65,535 numbers.
const (
	markSpace = 0xfa1 << 20
	markCount = 1<<16 - 1
)

// markOf returns the mark of a range's packets, a new one if it has none.
func (d *DataPlane) markOf(k service.Key) (uint32, error) {
	if !k.Range() {
		return 0, nil
	}
	if r := d.programmed[k]; r != nil {
		return r.mark, nil
	}
	for range markCount {
		d.lastMark = d.lastMark%markCount + 1
		if _, taken := d.marks[markSpace|d.lastMark]; !taken {
			return markSpace | d.lastMark, nil
		}
	}
	return 0, dataplane.Unsupported(k, fmt.Sprintf("more than %d port ranges", markCount))
}
