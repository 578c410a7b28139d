package gather

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/shorten"
	"github.com/fairlead/fairlead/source/manifest"
)

// process is what is known of a daemon's process on this machine.
type process struct {
	pid       int
	flags     map[string][]string
	texts     map[string][]byte
	missed    map[string]error
	manifests map[string][]byte
	errors    []string
}

// Limits of what is read of a process.
const (
	maxLog       = 4 << 20
	maxLogLines  = "20000"
	maxManifests = 16 << 20
	maxErrors    = 5
)

// processOf reads a process; 0 is one in another PID namespace.
func processOf(ctx context.Context, pid int, since time.Duration) process {
	p := process{pid: pid, texts: map[string][]byte{}, missed: map[string]error{}, manifests: map[string][]byte{}}
	if pid == 0 {
		p.missed["log.txt"] = errors.New("the process is in another PID namespace")
		return p
	}
	cmdline, err := os.ReadFile(p.proc("cmdline"))
	if err != nil {
		p.missed["process.txt"] = err
		return p
	}
	args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	p.flags = flagsOf(args)
	text := fmt.Appendf(nil, "%s\n", strings.Join(args, " "))
	for _, name := range []string{"status", "limits", "cgroup", "mountinfo"} {
		if more, err := os.ReadFile(p.proc(name)); err == nil {
			text = fmt.Appendf(text, "\n# %s\n%s", name, more)
		}
	}
	p.texts["process.txt"] = text
	p.log(ctx, since)
	for _, dir := range p.flags["manifest-dir"] {
		p.readManifests(filepath.Join(p.proc("root"), dir))
	}
	return p
}

func (p *process) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", p.pid, name) }

// flagsOf returns the values of flags by name.
func flagsOf(args []string) map[string][]string {
	flags := map[string][]string{}
	for i, arg := range args {
		name, is := strings.CutPrefix(arg, "--")
		if !is {
			continue
		}
		name, value, has := strings.Cut(name, "=")
		if !has && i+1 < len(args) {
			value = args[i+1]
		}
		flags[name] = append(flags[name], value)
	}
	return flags
}

// log reads the log: the file that standard error is, or the journal of systemd.
func (p *process) log(ctx context.Context, since time.Duration) {
	file, err := os.Open(p.proc("fd/2"))
	var text []byte
	if info, e := statFile(file, err); e == nil && info.Mode().IsRegular() {
		text = make([]byte, min(info.Size(), maxLog))
		var n int
		n, err = file.ReadAt(text, info.Size()-int64(len(text)))
		text = text[:n]
	} else {
		text, err = run(ctx, "journalctl", append(p.unit(), "--since", fmt.Sprintf("-%ds", int(since.Seconds())), "--lines", maxLogLines, "--output", "short-iso-precise", "--no-pager")...)
	}
	if file != nil {
		_ = file.Close()
	}
	if len(text) == 0 {
		p.missed["log.txt"] = cmp.Or(err, errors.New("the journal has no entries; in a container: kubectl logs"))
		return
	}
	p.texts["log.txt"] = text
	p.errors = errorLines(text)
}

func statFile(f *os.File, err error) (os.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	return f.Stat()
}

// unit returns the arguments of journalctl that select the process.
func (p *process) unit() []string {
	text, _ := os.ReadFile(p.proc("cgroup")) // otherwise by its PID
	if unit := regexp.MustCompile(`/([^/\s]+\.service)\b`).FindSubmatch(text); unit != nil {
		return []string{"--unit", string(unit[1])}
	}
	return []string{fmt.Sprintf("_PID=%d", p.pid)}
}

var reportsError = regexp.MustCompile(`level=ERROR|"level":"ERROR"|^panic:|^fatal error:`)

// errorLines returns the last lines that report errors.
func errorLines(log []byte) (lines []string) {
	for line := range bytes.Lines(log) {
		if reportsError.Match(line) {
			lines = append(lines, shorten.Text(strings.TrimSpace(string(line)), 300))
		}
	}
	return lines[max(0, len(lines)-maxErrors):]
}

// readManifests reads a folder of manifests.
func (p *process) readManifests(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		p.missed["manifests"] = err
		return
	}
	size := 0
	for _, e := range entries {
		if e.IsDir() || !manifest.IsManifest(e.Name()) {
			continue
		}
		text, err := limit.ReadFile(filepath.Join(dir, e.Name()), maxManifests)
		if size += len(text); err == nil && size > maxManifests {
			err = fmt.Errorf("all manifests together have more than %d bytes", maxManifests)
		}
		if err != nil {
			p.missed["manifests/"+e.Name()] = err
			continue
		}
		p.manifests[e.Name()] = text
	}
}

// namesSecret matches flags whose value is a file with secrets.
var namesSecret = regexp.MustCompile(`(password|secret|token|key|url).*file$|^kubeconfig$|key$`)

// serviceAccount is the token of a pod.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// secrets makes the redactor know the secrets of all daemons.
func (c *collector) secrets() {
	for _, d := range c.daemons {
		if d.pid == 0 {
			continue
		}
		files := []string{serviceAccount}
		for name, values := range d.flags {
			if namesSecret.MatchString(name) {
				files = append(files, values...)
			}
		}
		for _, file := range files {
			if text, err := limit.ReadFile(filepath.Join(d.proc("root"), file), limit.Secret); err == nil {
				c.redact.KnowFile(text)
			}
		}
		for _, text := range d.manifests {
			c.redact.KnowSecrets(text)
		}
	}
}

// run runs a command with a limit on time and output.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%s is not installed", name)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out := &capped{}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	return out.text, err
}

const commandTimeout = 5 * time.Second

// capped keeps the beginning of an output.
type capped struct{ text []byte }

func (c *capped) Write(b []byte) (int, error) {
	c.text = append(c.text, b[:min(len(b), limit.Item-len(c.text))]...)
	return len(b), nil
}

func sortedNames[V any](of map[string]V) (names []string) {
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
