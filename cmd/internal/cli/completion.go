package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newCompletionCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "completion {bash|zsh|fish}",
		Short: "The completion script of a shell",
		Long: `Completion writes the script that makes a shell complete commands, flags and
arguments of ` + program + `. Save it where the shell looks for such scripts.`,
		Example: strings.ReplaceAll(`  PROGRAM completion bash > /etc/bash_completion.d/PROGRAM
  PROGRAM completion zsh > "${fpath[1]}/_PROGRAM"
  PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish`, "PROGRAM", program),
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), knownShell),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			}
			return root.GenFishCompletion(out, true)
		},
	}
}

func knownShell(cmd *cobra.Command, args []string) error {
	if err := cobra.OnlyValidArgs(cmd, args); err != nil {
		return fmt.Errorf("%s: not a shell that completion knows: use bash, zsh or fish", args[0])
	}
	return nil
}
