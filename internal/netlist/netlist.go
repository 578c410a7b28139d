// Package netlist reads whole lists from the kernel by netlink. What the lists are for
// does not belong here.
package netlist

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
)

// tries is how often a list is read, and firstPause how long to wait after the first
// time. Each further pause is twice as long: a second in all.
const (
	tries      = 10
	firstPause = 2 * time.Millisecond
)

// Whole reads a list, again where it changed meanwhile (NLM_F_DUMP_INTR of
// linux/netlink.h): the kernel gives no snapshot, and may have left out entries. Where
// the list changes all the time it returns what it read last, with
// netlink.ErrDumpInterrupted.
func Whole[T any](list func() ([]T, error)) (all []T, err error) {
	for try := range tries {
		all, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || try == tries-1 {
			break
		}
		time.Sleep(firstPause << try)
	}
	return all, err
}
