package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// File descriptors of the connection to Options.Outside: init inherits it after those of
// the supervisor, and a program after the standard three.
const (
	initOutsideFD = readyFD + 1
	outsideFD     = 3
)

// passedOn is the environment variable of a program to which PassOn gives the connection.
const passedOn = marker + "_OUTSIDE"

// longest is the maximum length of a request or an answer in bytes.
const longest = 4096

var outside struct {
	sync.Mutex
	file *os.File
}

// Ask calls Options.Outside with a request, and returns its answer.
func Ask(request string) (answer string, err error) {
	outside.Lock()
	defer outside.Unlock()
	if outside.file == nil {
		return "", errors.New("nothing outside of this sandbox answers")
	}
	if _, err := outside.file.WriteString(request); err != nil {
		return "", err
	}
	b := make([]byte, longest)
	n, err := outside.file.Read(b)
	if err != nil {
		return "", fmt.Errorf("no answer from outside of the sandbox: %w", err)
	}
	return string(b[:n]), nil
}

// PassOn lets a command that enters a sandbox of its own ask outside of this one.
func PassOn(cmd *exec.Cmd) {
	if outside.file == nil {
		return
	}
	cmd.ExtraFiles = []*os.File{outside.file}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, passedOn+"=1")
}

// inherit makes the connection available to the program. Its children do not inherit it.
func inherit() {
	unix.CloseOnExec(outsideFD)
	outside.file = os.NewFile(outsideFD, "outside")
}

// connect returns the end of the connection for init. The other end is served here, unless
// this supervisor got one from a sandbox around it.
func connect(answer func(string) string) (*os.File, error) {
	if os.Getenv(passedOn) != "" {
		return os.NewFile(outsideFD, "outside"), nil
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	go serve(os.NewFile(uintptr(ends[0]), "inside"), answer)
	return os.NewFile(uintptr(ends[1]), "outside"), nil
}

func serve(inside *os.File, answer func(string) string) {
	defer inside.Close()
	for b := make([]byte, longest); ; {
		n, err := inside.Read(b)
		if err != nil || n == 0 {
			return
		}
		said := answer(string(b[:n]))
		if _, err := inside.WriteString(said[:min(len(said), longest)]); err != nil {
			return
		}
	}
}
