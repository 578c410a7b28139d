package quickstart_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
)

// machine is a host of the lab with its own name, /etc, /run and BPF file system, and with
// fairlead on its PATH.
type machine struct {
	*lab.Host
	holder *lab.Process // holds its mounts and its name
	log    string
}

const setUp = `set -e
mount -t tmpfs tmpfs /etc
mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf
mkdir /run/bin
ln -s "$2" /run/bin/fairlead
echo "$1" >/proc/sys/kernel/hostname
echo ready
exec sleep infinity
`

func newMachine(t *testing.T, h *lab.Host) *machine {
	t.Helper()
	m := &machine{Host: h, log: filepath.Join(t.TempDir(), h.Name()+".log")}
	cmd := exec.Command("unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", setUp, "sh", h.Name(), fixture.Binary)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if m.holder, err = h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%s is not ready: %q, %v", h.Name(), line, err)
	}
	return m
}

// command is a line of shell in the machine.
func (m *machine) command(line string) *exec.Cmd {
	cmd := exec.Command("nsenter", "--mount", "--uts", "--target", fmt.Sprint(m.holder.PID()), "sh", "-c", line)
	cmd.Env = append(os.Environ(), "PATH=/run/bin:"+os.Getenv("PATH"))
	return cmd
}

// run runs a command to its end, and returns its output.
func (m *machine) run(line string) (string, error) {
	var b strings.Builder
	cmd := m.command(line)
	cmd.Stdout, cmd.Stderr = &b, &b
	p, err := m.Start(cmd)
	if err != nil {
		return "", err
	}
	if err := p.Wait(); err != nil {
		return b.String(), fmt.Errorf("%s: %s: %w\n%s", m.Name(), line, err, b.String())
	}
	return b.String(), nil
}

// daemon starts a command that keeps running. It ends with the host.
func (m *machine) daemon(t *testing.T, line string) *lab.Process {
	t.Helper()
	log, err := os.Create(m.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := m.command("exec " + line)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := m.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// write writes a file, with its folder.
func (m *machine) write(t *testing.T, path, text string) {
	t.Helper()
	cmd := m.command(fmt.Sprintf("mkdir -p %s && cat >%s", filepath.Dir(path), path))
	cmd.Stdin = strings.NewReader(text)
	p, err := m.Start(cmd)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}
