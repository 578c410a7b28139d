package ipvs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// setTimeouts sets the namespace's timeouts that are configured and differ.
func (d *DataPlane) setTimeouts() error {
	want := map[uint16]time.Duration{
		attrTimeoutTCP: d.config.Timeouts.TCP, attrTimeoutTCPFin: d.config.Timeouts.TCPFin, attrTimeoutUDP: d.config.Timeouts.UDP,
	}
	maps.DeleteFunc(want, func(_ uint16, t time.Duration) bool { return t == 0 })
	if len(want) == 0 {
		return nil
	}
	err := d.socket.ask(newMessage(cmdGetConfig, 0), func(reply []byte) error {
		return attributes(reply[min(genlHeader, len(reply)):], func(kind uint16, b []byte) error {
			if time.Duration(number(b))*time.Second == want[kind] {
				delete(want, kind)
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("ipvs: read timeouts: %w", err)
	}
	if len(want) == 0 {
		return nil
	}
	m := newMessage(cmdSetConfig, 0)
	for _, kind := range []uint16{attrTimeoutTCP, attrTimeoutTCPFin, attrTimeoutUDP} {
		m = m.u32(kind, uint32(want[kind]/time.Second)) // 0 keeps it
	}
	return d.one("set timeouts", m)
}

// one executes one message, and others that cannot fail.
func (d *DataPlane) one(what string, m message, behind ...message) error {
	failed, err := d.socket.do(append([]message{m}, behind...))
	if err = errors.Join(err, failed[0]); err != nil {
		return fmt.Errorf("ipvs: %s: %w", what, err)
	}
	return nil
}

// daemon is one of the kernel's two sync daemons of a namespace.
type daemon struct {
	state uint32
	Sync
}

// The states of a daemon.
const (
	daemonMaster = 1
	daemonBackup = 2
)

// wantedDaemons are those that are configured.
func (s Sync) wantedDaemons() (all []daemon) {
	if s.Interface == "" {
		return nil
	}
	if s.Role == Master || s.Role == Both {
		all = append(all, daemon{daemonMaster, Sync{Interface: s.Interface, ID: s.ID}})
	}
	if s.Role == Backup || s.Role == Both {
		all = append(all, daemon{daemonBackup, Sync{Interface: s.Interface, ID: s.ID}})
	}
	return all
}

// daemons reads those that run.
func (d *DataPlane) daemons() (all []daemon, err error) {
	err = d.socket.ask(newMessage(cmdGetDaemon, unix.NLM_F_DUMP), func(reply []byte) error {
		content, err := nestedIn(reply, attrDaemon)
		if err != nil {
			return err
		}
		var o daemon
		err = attributes(content, func(kind uint16, b []byte) error {
			switch kind {
			case daemonState:
				o.state = uint32(number(b))
			case daemonInterface:
				o.Interface = cString(b)
			case daemonID:
				o.ID = int(number(b))
			}
			return nil
		})
		all = append(all, o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ipvs: read the sync daemons: %w", err)
	}
	return all, nil
}

// setSync makes exactly the configured daemons run. If none is configured, existing ones
// are left alone.
func (d *DataPlane) setSync() error {
	want := d.config.Sync.wantedDaemons()
	if len(want) == 0 {
		return nil
	}
	have, err := d.daemons()
	if err != nil {
		return err
	}
	for _, o := range have {
		if !slices.Contains(want, o) {
			if err := d.stop(o); err != nil {
				return err
			}
		}
	}
	for _, w := range want {
		if slices.Contains(have, w) {
			continue
		}
		if err := d.one(fmt.Sprintf("start the sync daemon on %s (Sync.Interface)", w.Interface), w.message(cmdNewDaemon)); err != nil {
			return err
		}
	}
	return nil
}

// stopSync stops the configured daemons.
func (d *DataPlane) stopSync() error {
	var errs []error
	for _, w := range d.config.Sync.wantedDaemons() {
		if err := d.stop(w); !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// stop stops a daemon. If its thread has not run yet, the kernel stops it with EINTR
// (kthread_stop), to which netlink_rcv_skb sends no answer: a request after it is
// answered instead.
func (d *DataPlane) stop(o daemon) error {
	return d.one("stop a sync daemon", o.message(cmdDelDaemon), newMessage(cmdGetConfig, 0))
}

func (s daemon) message(command uint8) message {
	return newMessage(command, 0).nested(attrDaemon, func(m message) message {
		return m.u32(daemonState, s.state).text(daemonInterface, s.Interface).u32(daemonID, uint32(s.ID))
	})
}
