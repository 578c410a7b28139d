// Command kernels is the part of make test-kernels that runs outside the guests:
// it lists the tests, reads what the guests print, and writes docs/kernels.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const usage = `usage:
  kernels list [-emulated]       print the packages and tests to run in a guest
  kernels result [flags] LOG     add a guest's results to RESULT.json
  kernels page                   write docs/kernels.md from docs/kernels.json`

// Where the committed results are, from the root of the repository.
const (
	docsJSON = "docs/kernels.json"
	docsPage = "docs/kernels.md"
)

var errFailed = errors.New("not all tests passed")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	switch args[0] {
	case "list":
		emulated := flags.Bool("emulated", false, "only the tests that are fast enough without KVM")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		list(os.Stdout, *emulated)
		return nil
	case "result":
		return result(flags, args[1:])
	case "page":
		return writePage()
	}
	return errors.New(usage)
}

// result adds one guest's results to a file, and with -update to the documentation.
func result(flags *flag.FlagSet, args []string) error {
	k := Kernel{Date: time.Now().UTC().Format(time.DateOnly)}
	flags.StringVar(&k.Series, "series", "", "the series that was asked for")
	flags.StringVar(&k.Release, "release", "", "the kernel's release")
	flags.StringVar(&k.Accel, "accel", "", "kvm or tcg")
	flags.IntVar(&k.Seconds, "seconds", 0, "how long the guest took")
	out := flags.String("o", "", "file to add the results to")
	partial := flags.Bool("partial", false, "keep earlier results of this kernel for other packages")
	update := flags.Bool("update", false, "add them to docs/kernels.json, too, and write docs/kernels.md")
	skip := flags.String("skip", "", "tests that were left out of this run, a regular expression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	console, err := os.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer console.Close()
	if err := parse(&k, console); err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	if err := k.leftOut(*skip); err != nil {
		return err
	}
	fmt.Print(summary(k))
	var files []string
	if *out != "" {
		files = append(files, *out)
	}
	if *update {
		files = append(files, docsJSON)
	}
	for _, file := range files {
		if err := add(file, k, *partial); err != nil {
			return err
		}
	}
	if *update {
		if err := writePage(); err != nil {
			return err
		}
	}
	if k.Failed() {
		return fmt.Errorf("%s: %w", k.Release, errFailed)
	}
	return nil
}

func add(file string, k Kernel, partial bool) error {
	r, err := read(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if partial {
		k = r.merged(k)
	}
	r.put(k)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return r.write(file)
}

func writePage() error {
	r, err := read(docsJSON)
	if err != nil {
		return err
	}
	return os.WriteFile(docsPage, []byte(page(r)), 0o644)
}
