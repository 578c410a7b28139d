package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/wholefile"
)

// plugins lists the programs that container runtimes look for.
var plugins = []string{"fairlead-cni", "fairlead-ipam"}

func newInstallCNICommand() *cobra.Command {
	var into string
	cmd := &cobra.Command{
		Use:   "install-cni",
		Short: "Put fairlead-cni and fairlead-ipam where the container runtime looks for them",
		Long: `Install-cni copies the network plugins that are beside this program, as in its image,
into a folder of the node. A plugin that runs meanwhile is not disturbed: each is
replaced whole.`,
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
	cmd.Flags().StringVar(&into, "bin-dir", "/opt/cni/bin", "`folder` of the plugins")
	return cmd
}

// replace atomically replaces a program with a copy of another.
func replace(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return wholefile.Write(to, 0o755, in)
}
