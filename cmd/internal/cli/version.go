package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/version"
)

func newVersionCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Which Fairlead this is, and the kernel it runs on",
		Example: "  " + program + " version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s (%s, %s/%s) on %s\n",
				program, version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH, version.Kernel())
			return err
		},
	}
}
