package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// product is the program under test: --fairlead.
type product struct{ path string }

func (p *product) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.path, "fairlead", "", "fairlead `binary` to run (default: the one next to this program, else the one in $PATH)")
}

// find returns the absolute path of the binary.
func (p *product) find() (string, error) {
	if p.path != "" {
		path, err := exec.LookPath(p.path)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return "", fmt.Errorf("--fairlead: %w", err)
		}
		return path, nil
	}
	if path, err := sibling("fairlead"); err == nil {
		return path, nil
	}
	path, err := exec.LookPath("fairlead")
	if err != nil {
		return "", fmt.Errorf("fairlead is neither next to this program nor in $PATH: build it with make build, or pass --fairlead FILE")
	}
	return filepath.Abs(path)
}

// sibling returns the path of a program in the directory of this one.
func sibling(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return exec.LookPath(filepath.Join(filepath.Dir(self), name))
}
