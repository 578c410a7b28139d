package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Steer distributes packets that an interface receives to the CPUs of a mask (RPS), or,
// with 0, leaves them on the receiving CPU.
func (h *Host) Steer(dev string, processors uint64) error {
	err := h.inSysfs(func() error {
		queues, err := filepath.Glob(filepath.Join("/sys/class/net", dev, "queues/rx-*/rps_cpus"))
		if err == nil && len(queues) == 0 {
			err = errors.New("no such interface, or a kernel without RPS")
		}
		for _, q := range queues {
			err = errors.Join(err, os.WriteFile(q, fmt.Appendf(nil, "%x", processors), 0))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("host %s: %s: steer what it receives: %w", h.Name(), dev, err)
	}
	return nil
}

// inSysfs runs f with the sysfs of the host's namespace at /sys, which is only visible to
// a process that mounts it there.
func (h *Host) inSysfs(f func() error) error {
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with its mount namespace.
		runtime.LockOSThread()
		if err := h.mountSysfs(); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func (h *Host) mountSysfs() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Setns(h.ns.FD(), unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	return nil
}
