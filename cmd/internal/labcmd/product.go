// Package labcmd contains what the programs of the laboratory share: the demo's command,
// and flags. Package main of fairlead-lab has the other commands. No installed program
// imports it.
package labcmd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// Product is the program under test: --fairlead.
type Product struct{ Path string }

// Flag adds the flag.
func (p *Product) Flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.Path, "fairlead", "", "fairlead `binary` to run (default: the one next to this program, else the one in $PATH)")
}

// Find returns the absolute path of the binary.
func (p *Product) Find() (string, error) {
	if p.Path != "" {
		path, err := exec.LookPath(p.Path)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return "", fmt.Errorf("--fairlead: %w", err)
		}
		return path, nil
	}
	if path, err := Sibling("fairlead"); err == nil {
		return path, nil
	}
	path, err := exec.LookPath("fairlead")
	if err != nil {
		return "", fmt.Errorf("fairlead is neither next to this program nor in $PATH: build it with make build, or pass --fairlead FILE")
	}
	return filepath.Abs(path)
}

// Sibling returns the path of a program in the directory of this one.
func Sibling(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return exec.LookPath(filepath.Join(filepath.Dir(self), name))
}

// Format is the format of a result: -o.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"
)

// Flag adds the flag.
func (o *Format) Flag(cmd *cobra.Command) {
	*o = Table
	cmd.Flags().StringVarP((*string)(o), "output", "o", string(*o), "output format: table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{string(Table), string(JSON)}, cobra.ShellCompDirectiveNoFileComp))
}

// Validate rejects other formats.
func (o Format) Validate() error {
	if o != Table && o != JSON {
		return fmt.Errorf("--output: %q is not one of %s, %s", string(o), Table, JSON)
	}
	return nil
}
