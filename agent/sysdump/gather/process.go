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
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/shorten"
	"github.com/fairlead/fairlead/source/manifest"
)

// Limits of what is read of a process.
const (
	maxLog       = 4 << 20
	maxLogLines  = "20000"
	maxManifests = 16 << 20
)

// readFlags reads the command line, and the file of flags that it names.
func (d *daemon) readFlags() {
	cmdline, err := os.ReadFile(d.proc("cmdline"))
	if err != nil || d.pid == 0 {
		return
	}
	d.flags = flagsOf(strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00"))
	for _, file := range d.flags["config"] {
		text, err := limit.ReadFile(d.path(file), limit.Text)
		if err != nil {
			continue
		}
		for name, values := range flagsInFile(text) {
			if _, overridden := d.flags[name]; !overridden {
				d.flags[name] = values
			}
		}
	}
}

// read reads the process, its log and its manifests.
func (d *daemon) read(ctx context.Context, since time.Duration) {
	if d.pid == 0 {
		d.missed["log.txt"] = errors.New("the process is in another PID namespace")
		return
	}
	var text []byte
	for _, name := range []string{"cmdline", "status", "limits", "cgroup", "mountinfo"} {
		if more, err := os.ReadFile(d.proc(name)); err == nil {
			text = fmt.Appendf(text, "# %s\n%s\n", name, bytes.ReplaceAll(more, []byte{0}, []byte{' '}))
		}
	}
	d.texts["process.txt"] = text
	d.log(ctx, since)
	d.manifests = map[string][]byte{}
	for _, dir := range d.flags["manifest-dir"] {
		d.readManifests(d.path(dir))
	}
}

func (d *daemon) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", d.pid, name) }

// path returns where a path of the process is for this one.
func (d *daemon) path(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Join(d.proc("root"), name)
	}
	return filepath.Join(d.proc("cwd"), name)
}

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

// flagsInFile returns the values of flags in a file for --config, by name.
func flagsInFile(text []byte) map[string][]string {
	var settings map[string]yaml.Node
	if yaml.Unmarshal(text, &settings) != nil {
		return nil // a daemon does not accept it either
	}
	flags := map[string][]string{}
	for name, value := range settings {
		if len(value.Content) == 0 {
			flags[name] = []string{value.Value}
		}
		for _, one := range value.Content {
			flags[name] = append(flags[name], one.Value)
		}
	}
	return flags
}

// log reads the log: the file that standard error is, or the journal of systemd.
func (d *daemon) log(ctx context.Context, since time.Duration) {
	text, isFile, err := tail(d.proc("fd/2"))
	if !isFile {
		text, err = run(ctx, "journalctl", append(d.unit(), "--since", fmt.Sprintf("-%ds", int(since.Seconds())), "--lines", maxLogLines, "--output", "short-iso-precise", "--no-pager")...)
	}
	if len(text) == 0 {
		d.missed["log.txt"] = cmp.Or(err, errors.New("the journal has no entries; in a container: kubectl logs"))
		return
	}
	d.texts["log.txt"] = text
	d.Errors = errorLines(text)
}

// tail returns the end of a regular file.
func tail(name string) (text []byte, isFile bool, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, false, err
	}
	text = make([]byte, min(info.Size(), maxLog))
	n, err := file.ReadAt(text, info.Size()-int64(len(text)))
	return text[:n], true, err
}

// unit returns the arguments of journalctl that select the process.
func (d *daemon) unit() []string {
	text, _ := os.ReadFile(d.proc("cgroup")) // otherwise by its PID
	if unit := regexp.MustCompile(`/([^/\s]+\.service)\b`).FindSubmatch(text); unit != nil {
		return []string{"--unit", string(unit[1])}
	}
	return []string{fmt.Sprintf("_PID=%d", d.pid)}
}

var reportsError = regexp.MustCompile(`level=ERROR|"level":"ERROR"|^panic:|^fatal error:`)

// errorLines returns the lines that report errors.
func errorLines(log []byte) (lines []string) {
	for line := range bytes.Lines(log) {
		if reportsError.Match(line) {
			lines = append(lines, shorten.Text(strings.TrimSpace(string(line)), 300))
		}
	}
	return lines
}

// readManifests reads a folder of manifests.
func (d *daemon) readManifests(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		d.missed["manifests"] = err
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
			d.missed["manifests/"+e.Name()] = err
			continue
		}
		d.manifests[e.Name()] = text
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
			if name == "webhook-url" {
				c.redact.KnowFile([]byte(strings.Join(values, "\n")))
			}
		}
		for _, file := range files {
			if text, err := limit.ReadFile(d.path(file), limit.Secret); err == nil {
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
