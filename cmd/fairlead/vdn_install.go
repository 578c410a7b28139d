package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/atomicfile"
)

// plugins are the CNI plugins that container runtimes run.
var plugins = []string{"fairlead-cni", "fairlead-ipam"}

func newInstallCNICommand() *cobra.Command {
	var into string
	cmd := &cobra.Command{
		Use:   "install-cni",
		Short: "Copy fairlead-cni and fairlead-ipam to the node's CNI directory",
		Long: `Copy the CNI plugins next to this program, as in its image, to a directory of the
node. Each file is replaced atomically, so that a running plugin is not disturbed.`,
		Example: `  fairlead vdn install-cni --bin-dir /host/opt/cni/bin`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			for _, name := range plugins {
				if err := replace(filepath.Join(filepath.Dir(self), name), filepath.Join(into, name)); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&into, "bin-dir", "/opt/cni/bin", "`DIR` of the CNI plugins")
	return cmd
}

// replace atomically replaces a program by another.
func replace(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return atomicfile.Write(to, 0o755, in)
}
