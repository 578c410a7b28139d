// Package convert is fairlead import: it writes what an importer has read.
package convert

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/source/importer"
	"github.com/fairlead/fairlead/source/importer/ipvsadm"
	"github.com/fairlead/fairlead/source/importer/keepalived"
	"github.com/fairlead/fairlead/source/importer/metallb"
)

// NewCommand returns the command import.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Convert another load balancer's configuration to manifests",
		Long: `Write manifests that fairlead agent accepts. Settings without a counterpart are
listed in comments in front of the manifests and on stderr, each with file, line,
reason and a suggestion.`,
	}
	cmd.AddCommand(newImportKeepalivedCommand(), newImportIpvsadmCommand(), newImportMetallbCommand())
	return cmd
}

func newImportKeepalivedCommand() *cobra.Command {
	w := &importWriter{}
	o := keepalived.Options{Marks: importer.Marks{}, Include: includeFiles}
	cmd := &cobra.Command{
		Use:   "keepalived FILE",
		Short: "Convert keepalived.conf",
		Long: `Read a keepalived.conf with its includes. Virtual servers become Services. VRRP
instances have no counterpart: all load balancers are active behind ECMP and
advertise by BGP.

keepalived.conf does not define firewall marks: --mark does.`,
		Example: `  fairlead import keepalived /etc/keepalived/keepalived.conf > services.yaml
  fairlead import keepalived keepalived.conf --output-dir /etc/fairlead/services --mark 1=10.1.1.1:80`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, text, err := readInput(cmd, args[0])
			if err != nil {
				return err
			}
			return w.write(cmd)(keepalived.Read(keepalived.File{Name: name, Text: text}, o))
		},
	}
	w.flags(cmd)
	markFlag(cmd, o.Marks)
	cmd.Flags().StringVar(&o.ConfigID, "config-id", "", "`ID` that selects lines starting with @, as keepalived --config-id does")
	return cmd
}

func newImportIpvsadmCommand() *cobra.Command {
	w, marks := &importWriter{}, importer.Marks{}
	cmd := &cobra.Command{
		Use:   "ipvsadm FILE",
		Short: "Convert the output of ipvsadm -Sn",
		Long: `Read the output of ipvsadm -Sn, the virtual services of a kernel; "-" reads
standard input. It does not define firewall marks: --mark does.`,
		Example: `  fairlead import ipvsadm rules > services.yaml
  fairlead import ipvsadm - --mark 1=10.1.1.1:5060/udp -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, text, err := readInput(cmd, args[0])
			if err != nil {
				return err
			}
			return w.write(cmd)(ipvsadm.Read(name, text, marks))
		},
	}
	w.flags(cmd)
	markFlag(cmd, marks)
	return cmd
}

func newImportMetallbCommand() *cobra.Command {
	w := &importWriter{}
	cmd := &cobra.Command{
		Use:   "metallb FILE...",
		Short: "Convert MetalLB resources or its ConfigMap",
		Long: `Read MetalLB resources, or its old ConfigMap, together with the Services and their
EndpointSlices as printed by kubectl get -o yaml. Services get Fairlead's
annotations in place of MetalLB's; pools, peers and advertisements become
AddressPools, BGPPeers and Advertisements.`,
		Example: `  fairlead import metallb metallb.yaml services.yaml --output-dir /etc/fairlead/services`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var files []metallb.File
			for _, arg := range args {
				name, text, err := readInput(cmd, arg)
				if err != nil {
					return err
				}
				files = append(files, metallb.File{Name: name, Text: text})
			}
			return w.write(cmd)(metallb.Read(files))
		},
	}
	w.flags(cmd)
	return cmd
}

func markFlag(cmd *cobra.Command, marks importer.Marks) {
	cmd.Flags().Func("mark", "destination of the packets with a firewall mark: `mark=address[:port[-port]][/protocol]`", marks.Set)
}

// readInput reads a file, or standard input if its name is "-".
func readInput(cmd *cobra.Command, name string) (string, []byte, error) {
	if name == "-" {
		text, err := limit.ReadAll(cmd.InOrStdin(), "stdin", limit.Text)
		return "stdin", text, err
	}
	text, err := limit.ReadFile(name, limit.Text)
	return name, text, err
}

// includeFiles returns the files that keepalived would include, sorted.
func includeFiles(from, pattern string) ([]keepalived.File, error) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(from), pattern)
	}
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var files []keepalived.File
	left := int64(limit.Text) // for all of them together
	for _, name := range names {
		text, err := limit.ReadFile(name, left)
		var long *limit.TooLong
		if errors.As(err, &long) {
			return nil, &limit.TooLong{What: pattern + " up to " + name, Most: limit.Text}
		}
		if err != nil {
			return nil, err
		}
		left -= int64(len(text))
		files = append(files, keepalived.File{Name: name, Text: text})
	}
	return files, nil
}

// importWriter writes the result of an import.
type importWriter struct{ format, into string }

func (w *importWriter) flags(cmd *cobra.Command) {
	w.format = "yaml"
	f := cmd.Flags()
	f.VarP((*importFormat)(&w.format), "output", "o", "yaml or json, with the losses in it")
	f.StringVar(&w.into, "output-dir", "", "write one file per Service into `DIR`; existing files are not overwritten")
	cmd.MarkFlagsMutuallyExclusive("output", "output-dir")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(importFormats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagDirname("output-dir") // these fail only for an undefined flag
}

var importFormats = []string{"yaml", "json"}

// importFormat validates -o while flags are parsed.
type importFormat string

func (f *importFormat) String() string { return string(*f) }
func (f *importFormat) Type() string   { return "format" }

func (f *importFormat) Set(s string) error {
	if s != "yaml" && s != "json" {
		return fmt.Errorf("%q is not an output format of import: use %s", s, strings.Join(importFormats, " or "))
	}
	*f = importFormat(s)
	return nil
}

func (w *importWriter) write(cmd *cobra.Command) func(*importer.Result, error) error {
	return func(r *importer.Result, err error) error {
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if w.format == "json" {
			text, err := r.JSON()
			if err == nil {
				_, err = out.Write(text)
			}
			return err
		}
		if w.into != "" {
			err = WriteManifests(w.into, r)
		} else {
			_, err = out.Write(r.YAML())
		}
		if err == nil {
			printLosses(cmd.ErrOrStderr(), r)
		}
		return err
	}
}

// printLosses prints the settings that could not be imported.
func printLosses(out io.Writer, r *importer.Result) {
	lines := importer.Lines(r.Losses)
	for _, l := range lines {
		fmt.Fprintln(out, l)
	}
	if command := r.Command(); command != "" {
		fmt.Fprintln(out, "balancers run:", command)
	}
	others := ""
	if n := len(r.Routing); n > 0 {
		others = fmt.Sprintf("other objects: %d; ", n)
	}
	fmt.Fprintf(out, "Services: %d; %swithout counterpart: %d\n", len(r.Manifests), others, len(lines))
}

// WriteManifests writes each Service, and each other object, to a separate file, or
// nothing if one of the files exists.
func WriteManifests(dir string, r *importer.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	all := slices.Concat(r.Routing, r.Manifests)
	for _, m := range all {
		if _, err := os.Lstat(manifestPath(dir, m)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there already: move it away, or import into another folder", manifestPath(dir, m))
		}
	}
	for _, m := range all {
		if err := writeNew(manifestPath(dir, m), r.File(m)); err != nil {
			return err
		}
	}
	return nil
}

func manifestPath(dir string, m importer.Manifest) string { return filepath.Join(dir, m.Name+".yaml") }

// writeNew atomically creates a new file, because an agent may be watching the directory.
func writeNew(path string, text []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".import.*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(text)
	if err := errors.Join(err, temp.Chmod(0o644), temp.Close()); err != nil {
		return err
	}
	return os.Link(temp.Name(), path)
}
