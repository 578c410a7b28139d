// Package gather collects a node's part of a sysdump: what its daemons answer on their sockets,
// their logs, manifests and profiles, and the kernel's links, routes, programs and maps. It
// only reads. What it means is up to package sysdump, which also removes secrets.
package gather

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/doctor"
	doctorgather "github.com/fairlead/fairlead/agent/doctor/gather"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/agent/sysdump"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/internal/version"
)

// Options say what to collect.
type Options struct {
	// Sockets are those of the daemons; empty: all in the default directory.
	Sockets []string
	// MaxSize is the size in bytes up to which the archive grows.
	MaxSize int64
	// Since is how far back logs go.
	Since time.Duration
	// Observe is how long counters and CPU profiles are observed.
	Observe time.Duration
	// Doctor are the options of the examination of this machine.
	Doctor doctor.Options
}

// collector is a dump in progress.
type collector struct {
	Options
	redact  sysdump.Redactor
	daemons []*daemon
	node    sysdump.Node
	archive *sysdump.Archive
	// texts of this machine, by file.
	machine map[string][]byte
	missed  map[string]error
}

// Collect returns the dump of this machine, and its findings. It takes about twice as long as
// Observe, and ends with ctx.
func Collect(ctx context.Context, o Options) (*sysdump.Archive, []sysdump.Finding, []byte, error) {
	now := time.Now()
	c := &collector{Options: o, machine: map[string][]byte{}, missed: map[string]error{}}
	if err := c.find(ctx); err != nil {
		return nil, nil, nil, err
	}
	var wait sync.WaitGroup
	for _, d := range c.daemons {
		wait.Go(func() { d.collect(ctx, o) })
	}
	wait.Go(func() { c.observeKernel(ctx) })
	wait.Go(func() { c.commands(ctx) })
	wait.Go(func() { c.examine(ctx) })
	wait.Wait()
	c.files()
	c.bpf()

	for _, d := range c.daemons {
		c.node.Daemons = append(c.node.Daemons, d.Daemon)
		c.node.Name = cmp.Or(c.node.Name, d.Status.Node)
	}
	host, _ := os.Hostname() // otherwise it has no name
	c.node.Name = cmp.Or(c.node.Name, host, "node")
	c.archive = sysdump.NewArchive("sysdump-"+safe(c.node.Name), now, o.MaxSize)
	c.secrets()
	c.fill()
	all := c.node.Findings(time.Now())
	redacted, err := c.redact.JSON(all)
	if err != nil {
		return nil, nil, nil, err
	}
	all = nil
	err = json.Unmarshal(redacted, &all)
	summary := c.redact.Text(sysdump.Summary(c.node.Name, now, c.head(), all, c.archive.Left))
	return c.archive, all, summary, err
}

// find looks for daemons.
func (c *collector) find(ctx context.Context) (err error) {
	paths := c.Sockets
	if len(paths) == 0 {
		if paths, err = socket.In(socket.Dir); err != nil {
			return err
		}
	}
	for _, path := range paths {
		d := &daemon{Daemon: sysdump.Daemon{Socket: path}, texts: map[string][]byte{}, missed: map[string]error{}}
		if d.pid, d.Err = doctorgather.Listener(ctx, path); d.Err == nil {
			d.readFlags()
		}
		c.daemons = append(c.daemons, d)
	}
	return nil
}

// head describes what was dumped.
func (c *collector) head() (lines []string) {
	lines = append(lines, fmt.Sprintf("%s, fairlead %s made this dump", version.Kernel(), version.String()))
	for _, d := range c.daemons {
		if d.Err == nil {
			s := d.Status
			lines = append(lines, fmt.Sprintf("%s on %s: %s, up %s, services: %d", s.Role, s.Node, s.Version, status.Age(s.Started, s.Time), len(s.Services)))
		}
	}
	return lines
}

// examine runs the checks of fairlead doctor.
func (c *collector) examine(ctx context.Context) {
	o := c.Options.Doctor
	if len(c.Sockets) > 0 {
		o.Socket = c.Sockets[0]
	}
	for _, d := range c.daemons { // as the agent is configured
		for name, to := range map[string]*string{"bpffs": &o.BPFFS, "manifest-dir": &o.Services, "dataplane": &o.DataPlane} {
			if values := d.flags[name]; len(values) > 0 {
				*to = values[len(values)-1]
			}
		}
	}
	facts, examined := doctorgather.Collect(ctx, o)
	c.node.Doctor = doctor.Examine(facts, examined)
}

// fill adds everything to the archive, the most important first.
func (c *collector) fill() {
	c.json("doctor.json", c.node.Doctor)
	for _, d := range c.daemons {
		folder := d.folder()
		for _, name := range []string{"status.json", "ready.json", "events.jsonl", "drops.json", "explain.json", "log.txt", "process.txt", "flows.jsonl"} {
			c.text(filepath.Join(folder, name), d.texts[name])
			delete(d.texts, name)
		}
		for name, text := range d.manifests {
			c.archive.Add(filepath.Join(folder, "manifests", name), c.redact.Manifest(text))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.machine)) {
		c.text(filepath.Join("machine", name), c.machine[name])
	}
	for _, d := range c.daemons {
		for _, name := range slices.Sorted(maps.Keys(d.texts)) { // profiles: binary, and names of functions only
			c.archive.Add(filepath.Join(d.folder(), name), d.texts[name])
		}
		for _, name := range slices.Sorted(maps.Keys(d.missed)) {
			c.archive.Miss(filepath.Join(d.folder(), name), d.missed[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.missed)) {
		c.archive.Miss(name, c.missed[name])
	}
}

// text adds a file; JSON is redacted by its fields, too.
func (c *collector) text(name string, text []byte) {
	if len(text) == 0 {
		return
	}
	if !strings.HasSuffix(name, ".json") {
		c.archive.Add(name, c.redact.Text(text))
		return
	}
	c.json(name, json.RawMessage(text))
}

func (c *collector) json(name string, v any) {
	text, err := c.redact.JSON(v)
	if err != nil {
		c.archive.Miss(name, errors.New("not valid JSON"))
		return
	}
	c.archive.Add(name, text)
}

// observeKernel compares the kernel's counters before and after.
func (c *collector) observeKernel(ctx context.Context) {
	before := netCounters()
	sleep.For(ctx, c.Observe)
	c.node.Kernel = grown(before, netCounters())
}

// grown returns how much counters grew.
func grown(before, after map[string]uint64) map[string]uint64 {
	grew := map[string]uint64{}
	for name, n := range after {
		if n > before[name] {
			grew[name] = n - before[name]
		}
	}
	return grew
}

// safe returns a name that can be that of a file.
func safe(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r < ' ' {
			return '_'
		}
		return r
	}, strings.TrimLeft(name, "."))
}
