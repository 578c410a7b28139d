// Package netlist reads complete lists from the kernel through netlink. What the lists are
// for does not belong here.
package netlist

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
)

// tries is how often a list is read, and firstPause the pause after the first attempt. Each
// further pause is twice as long: one second in total.
const (
	tries      = 10
	firstPause = 2 * time.Millisecond
)

// Whole reads a list, and reads it again if it changed meanwhile (NLM_F_DUMP_INTR of
// linux/netlink.h): the kernel provides no snapshot, and may have omitted entries. If the
// list changes all the time, Whole returns the last result with netlink.ErrDumpInterrupted.
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
