// Command testrun runs go test and shows a long run so that people and CI can
// follow it: one line for each package as it finishes, then what failed, then
// the counts.
//
//	testrun [flags] PACKAGE... [-- GO-TEST-FLAG...]
//
// This package only runs go test and renders its events. It knows nothing about
// what the tests need: scripts/test.sh does.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/scripts/internal/durations"
)

const (
	interrupted = 130              // exit code, like that of a shell command that SIGINT ended
	grace       = 10 * time.Second // between the first signal to the tests and SIGKILL
)

type options struct {
	verbose, record      bool
	durations, log, last string
	packages, goFlags    []string
}

func main() {
	code, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	os.Exit(code)
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: testrun [flags] PACKAGE... [-- GO-TEST-FLAG...]")
		flags.PrintDefaults()
	}
	flags.BoolVar(&o.verbose, "v", false, "print all output of all tests as they run")
	flags.StringVar(&o.log, "log", "", "write all output of all tests to this `file`, too")
	flags.StringVar(&o.durations, "durations", "", "`file` with the seconds that packages take: the slowest start first")
	flags.BoolVar(&o.record, "record", false, "update the -durations file with this run")
	flags.StringVar(&o.last, "last", "", "start packages that match this `regexp` last")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.packages = flags.Args()
	if i := slices.Index(o.packages, "--"); i >= 0 {
		o.packages, o.goFlags = o.packages[:i], o.packages[i+1:]
	}
	return o, nil
}

func run(args []string, stdout, stderr io.Writer) (int, error) {
	o, err := parse(args, stderr)
	if err != nil {
		return 2, nil // flag has printed the reason
	}
	module, packages, err := list(o.packages, stderr)
	if err != nil {
		return 1, err
	}
	known, err := durations.Read(o.durations)
	if err != nil {
		return 1, err
	}
	last, err := regexp.Compile(o.last)
	if err != nil {
		return 2, err
	}
	order(packages, module, known, func(p string) bool { return o.last != "" && last.MatchString(p) })

	r := newReport(stdout, module, len(packages))
	r.verbose = o.verbose
	if o.log != "" {
		if err := os.MkdirAll(filepath.Dir(o.log), 0o755); err != nil {
			return 1, err
		}
		file, err := os.Create(o.log)
		if err != nil {
			return 1, err
		}
		defer file.Close()
		r.log, r.logName = file, o.log
	}
	began := time.Now()
	code, err := test(r, slices.Concat(o.goFlags, packages), stderr)
	r.end(time.Since(began), code)
	if err == nil && o.record {
		err = writeDurations(o.durations, merge(known, r.seconds))
	}
	return code, err
}

// list returns the module's path and the packages that patterns match. Packages with
// errors are included: go test reports each of them.
func list(patterns []string, stderr io.Writer) (module string, packages []string, err error) {
	cmd := exec.Command("go", slices.Concat([]string{"list", "-e", "-f", "{{with .Module}}{{.Path}}{{end}} {{.ImportPath}}"}, patterns)...)
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		return "", nil, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		in, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path == "" {
			path = in
		} else {
			module = in
		}
		packages = append(packages, path)
	}
	if len(packages) == 0 {
		return "", nil, fmt.Errorf("no packages match %s", strings.Join(patterns, " "))
	}
	return module, packages, nil
}

// test runs go test -json and feeds its events to the report. It returns the exit code of
// go test.
func test(r *report, args []string, stderr io.Writer) (int, error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	cmd := exec.Command("go", slices.Concat([]string{"test", "-json"}, args)...)
	cmd.Stderr = stderr
	// In a separate process group, go test and all its children receive the signals that
	// this process passes on, wherever those came from.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ctx, ended := context.WithCancel(context.Background())
	stopped := make(chan bool)
	go func() { stopped <- forward(ctx, signals, cmd.Process.Pid) }()
	readErr := r.follow(stdout)
	err = cmd.Wait()
	ended()
	switch code := cmd.ProcessState.ExitCode(); {
	case <-stopped:
		return interrupted, nil
	case readErr != nil:
		return max(code, 1), readErr
	case code < 0: // a signal that this process has not sent
		return 1, fmt.Errorf("go test: %w", err)
	default:
		return code, nil
	}
}

// forward passes the first signal on to a process group; a second one, or the
// end of a grace period, kills the group. It reports whether there was a signal.
func forward(ctx context.Context, signals <-chan os.Signal, group int) bool {
	select {
	case <-ctx.Done():
		return false
	case s := <-signals:
		syscall.Kill(-group, s.(syscall.Signal)) //nolint:errcheck // it may have ended by itself
	}
	select {
	case <-ctx.Done():
	case <-signals:
	case <-time.After(grace):
	}
	syscall.Kill(-group, syscall.SIGKILL) //nolint:errcheck // mostly nothing is left
	return true
}
