// Package budget limits the CPU time of processes and of kernel threads, and reads what
// they have used. A limit is a budget of the kernel's deadline scheduler: a share of each
// period, reserved before all ordinary work, and no more than that. Quotas of cgroups are
// no alternative: since Linux 6.18 a task is only throttled where it returns to user mode,
// which a kernel thread never does.
package budget

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/sandbox"
)

// period is short next to the timeouts of TCP.
const period = 10 * time.Millisecond

// Thread is the ID of a thread of a process.
type Thread int

// Limit limits the thread to a share of one CPU, until it ends: a thread that leaves the
// deadline scheduler while it sleeps would not return its share (Linux 6.18). The sum of
// all shares is at most 0.95 of the CPUs. Children of the thread have no limit.
func (t Thread) Limit(share float64) error {
	attr := unix.SchedAttr{
		Policy: unix.SCHED_DEADLINE, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
		Runtime: uint64(share * float64(period)), Deadline: uint64(period), Period: uint64(period),
	}
	if err := unix.SchedSetAttr(int(t), &attr, 0); err != nil {
		return fmt.Errorf("thread %d: a budget of %g CPU: %w", t, share, err)
	}
	return nil
}

// Used returns the CPU time that the thread has used.
func (t Thread) Used() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", t))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	ns, err := strconv.ParseInt(first, 10, 64)
	return time.Duration(ns), err
}

// Process limits each thread of a process to a share of one CPU. Threads that start later
// have no limit.
func Process(pid int, share float64) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err == nil && len(threads) == 0 {
		err = os.ErrProcessDone
	}
	for _, path := range threads {
		thread, _ := strconv.Atoi(filepath.Base(path))
		err = errors.Join(err, Thread(thread).Limit(share))
	}
	return err
}

// KernelThread is the NAPI ID of a thread that receives packets. The thread is invisible
// in a sandbox, whose Options.Outside must be Serve.
type KernelThread int

// Limit limits the thread to a share of one CPU, like Thread.Limit.
func (k KernelThread) Limit(share float64) error {
	_, err := k.ask("limit", strconv.FormatFloat(share, 'g', -1, 64))
	return err
}

// Used returns the CPU time that the thread has used.
func (k KernelThread) Used() (time.Duration, error) {
	said, err := k.ask("used")
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(said, 10, 64)
	return time.Duration(ns), err
}

const failed = "failed: "

func (k KernelThread) ask(words ...string) (string, error) {
	answer, err := sandbox.Ask(strings.Join(append(words, strconv.Itoa(int(k))), " "))
	if why, is := strings.CutPrefix(answer, failed); is {
		err = fmt.Errorf("kernel thread for NAPI %d: %s", k, why)
	}
	return answer, err
}

// Serve is the part of this package outside of a sandbox.
func Serve(request string) string {
	answer, err := serve(strings.Fields(request))
	if err != nil {
		return failed + err.Error()
	}
	return answer
}

func serve(words []string) (string, error) {
	if len(words) < 2 {
		return "", fmt.Errorf("%q: what, and which thread?", words)
	}
	thread, err := find(words[len(words)-1])
	if err != nil {
		return "", err
	}
	switch {
	case words[0] == "limit" && len(words) == 3:
		share, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			return "", err
		}
		return "done", thread.Limit(share)
	case words[0] == "used":
		took, err := thread.Used()
		return strconv.FormatInt(int64(took), 10), err
	}
	return "", fmt.Errorf("unknown request %q", words)
}

// find returns the thread with a NAPI ID, which is part of its name:
// napi/eth0-8193.
func find(id string) (Thread, error) {
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range all {
		name, _ := os.ReadFile(path) // a process may have ended
		if strings.HasPrefix(string(name), "napi/") && strings.HasSuffix(string(name), "-"+id+"\n") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return Thread(pid), err
		}
	}
	return 0, errors.Join(err, errors.New("invisible: does this command run in a container?"))
}
