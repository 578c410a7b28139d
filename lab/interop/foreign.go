// Package interop runs other routing daemons in a network namespace, FRR and BIRD as the
// upstream router, GoBGP and ExaBGP with their own configuration, to test that Fairlead's
// BGP interoperates with them. It writes their configuration into its own folder, starts
// Debian's binaries and leaves nothing behind. It does not create namespaces or inspect
// routes.
package interop

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/netns"
)

// Kind is the daemon's implementation.
type Kind string

// The kinds.
const (
	FRR    Kind = "frr"
	BIRD   Kind = "bird"
	GoBGP  Kind = "gobgp"
	ExaBGP Kind = "exabgp"
	// Zebra is GoBGP with FRR's zebra.
	Zebra Kind = "gobgp and zebra"
)

// Config is a router that learns routes from reflectors.
type Config struct {
	AS           uint32
	RouterID     netip.Addr // IPv4
	LocalAddress netip.Addr
	Peers        []Peer
	// MaxPaths is the maximum number of next hops of a route; 0 means 16.
	MaxPaths int
	// Metric of the kernel routes; 0 means 20. FRR always uses 20.
	Metric int
	// BFD monitors the sessions, 3 times 300 ms.
	BFD bool
	// Text is the complete configuration of the BGP daemon, instead of one generated from
	// the fields above; FRR then also listens. GoBGP and ExaBGP need it.
	Text string
	// Program is the gobgpd of Zebra to run instead of Debian's.
	Program string
	// Files are configurations that are used unchanged, by name (bgpd.conf, bfdd.conf,
	// bird.conf), instead of generated ones.
	Files map[string]string
}

// Peer is a reflector.
type Peer struct {
	Address  netip.Addr
	AS       uint32
	Port     uint16 // 0 means 179
	Password string
}

// readyWithin is how long a daemon may take to open its control socket.
const readyWithin = 20 * time.Second

// Daemon is a running router.
type Daemon struct {
	kind      Kind
	dir       string
	processes []*process
}

type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

// program is a daemon to start: it is up when its socket accepts connections, or
// immediately without a socket.
type program struct {
	name   string
	paths  []string // Debian's paths
	args   []string
	env    []string
	socket string
}

// Start runs a router in a namespace and returns when it accepts commands; its sessions
// come up later.
func Start(ns *netns.NS, kind Kind, c Config) (*Daemon, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	if c.Text == "" && (kind == GoBGP || kind == ExaBGP || kind == Zebra) {
		return nil, fmt.Errorf("%s: text: required: it cannot be generated for this daemon", kind)
	}
	parts, known := map[Kind]func(string) ([]program, map[string]string, string){FRR: c.frr, BIRD: c.bird, GoBGP: c.gobgp, ExaBGP: c.exabgp, Zebra: c.zebra}[kind]
	if !known {
		return nil, fmt.Errorf("router %q is not known; known are %s, %s, %s, %s and %s", kind, FRR, BIRD, GoBGP, ExaBGP, Zebra)
	}
	dir, err := os.MkdirTemp("", "fairlead-"+strings.ReplaceAll(string(kind), " ", "-")+"-")
	if err != nil {
		return nil, err
	}
	d := &Daemon{kind: kind, dir: dir}
	programs, files, debian := parts(dir)
	maps.Copy(files, c.Files)
	err = d.start(ns, programs, files)
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%w; install Debian's package %s", err, debian)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", kind, err), d.Stop())
	}
	return d, nil
}

// validate also fills in defaults.
func (c *Config) validate() error {
	if c.MaxPaths == 0 {
		c.MaxPaths = 16
	}
	if c.Metric == 0 {
		c.Metric = 20
	}
	if c.Text != "" {
		return nil
	}
	if !c.RouterID.Is4() {
		return errors.New("routerID: want an IPv4 address")
	}
	if len(c.Peers) == 0 {
		return errors.New("peers: none given")
	}
	c.Peers = slices.Clone(c.Peers)
	for i, p := range c.Peers {
		if strings.ContainsAny(p.Password, " \t\n\"\\;{}!#") {
			return fmt.Errorf("peers[%d].password: contains characters with a special meaning in the configuration file", i)
		}
		if p.AS == 0 {
			c.Peers[i].AS = c.AS
		}
		if p.Port == 0 {
			c.Peers[i].Port = 179
		}
	}
	return nil
}

func (d *Daemon) start(ns *netns.NS, programs []program, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := d.own(); err != nil {
		return err
	}
	for _, p := range programs {
		if err := d.launch(ns, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// own gives the folder to the user that FRR's daemons change to, if that user exists.
func (d *Daemon) own() error {
	u, err := user.Lookup(frrUser)
	if err != nil {
		return nil
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	return filepath.WalkDir(d.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, uid, gid)
	})
}

func (d *Daemon) launch(ns *netns.NS, p program) error {
	path, err := find(p)
	if err != nil {
		return err
	}
	log, err := os.Create(d.logFile(p.name))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.dir, log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := ns.Do(cmd.Start); err != nil {
		return err
	}
	// Like Fairlead's own processes in labs: the load must not compete for the CPUs.
	if err := lab.GoFirst(cmd.Process.Pid); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	run := &process{name: p.name, cmd: cmd, done: make(chan struct{})}
	d.processes = append(d.processes, run)
	go func() {
		_ = cmd.Wait()
		close(run.done)
	}()
	if p.socket == "" {
		return nil
	}
	for deadline := time.Now().Add(readyWithin); ; {
		c, err := net.Dial("unix", p.socket)
		if err == nil {
			c.Close()
			return nil
		}
		select {
		case <-run.done:
			return fmt.Errorf("exited immediately (%s): %s", cmd.ProcessState, d.tail(p.name))
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("does not accept commands after %s: %s", readyWithin, d.tail(p.name))
		}
	}
}

func find(p program) (string, error) {
	for _, path := range p.paths {
		if i, err := os.Stat(path); err == nil && i.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w at %s", exec.ErrNotFound, strings.Join(p.paths, " or "))
}

func (d *Daemon) logFile(name string) string { return filepath.Join(d.dir, name+".log") }

// tail is the end of a daemon's log.
func (d *Daemon) tail(name string) string {
	b, _ := os.ReadFile(d.logFile(name))
	return strings.TrimSpace(string(b[max(0, len(b)-2000):]))
}

// Log returns what the daemons have written so far.
func (d *Daemon) Log() string {
	var all strings.Builder
	for _, p := range d.processes {
		b, _ := os.ReadFile(d.logFile(p.name))
		fmt.Fprintf(&all, "== %s\n%s", p.name, b)
	}
	return all.String()
}

// Ask returns the output of a vtysh, birdc or gobgp command.
func (d *Daemon) Ask(command string) (string, error) {
	var cmd *exec.Cmd
	switch d.kind {
	case FRR:
		cmd = exec.Command("vtysh", "--vty_socket", d.dir, "-c", command)
	case BIRD:
		cmd = exec.Command("birdc", "-r", "-s", filepath.Join(d.dir, birdSocket), command)
	case GoBGP:
		cmd = exec.Command("gobgp", append([]string{"--target", "unix://" + filepath.Join(d.dir, gobgpSocket)}, strings.Fields(command)...)...)
	default:
		return "", fmt.Errorf("%s accepts no commands", d.kind)
	}
	answer, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, answer)
	}
	return string(answer), nil
}

// Stop stops the daemons, the last one first; they remove their routes from the kernel.
// Their files are removed. A second Stop does nothing.
func (d *Daemon) Stop() error {
	for i := len(d.processes) - 1; i >= 0; i-- {
		p := d.processes[i]
		_ = p.cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(5 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	d.processes = nil
	return os.RemoveAll(d.dir)
}
