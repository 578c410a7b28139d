package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// daemon returns a command with flags of several types, which records what it ran with.
func daemon(ran *string) *cobra.Command {
	root := NewRoot("prog", "A program", "A program.")
	cmd := &cobra.Command{Use: "daemon", Short: "Run", Args: cobra.NoArgs}
	f := cmd.Flags()
	name := f.String("name", "host", "`NAME` of this node")
	peers := f.StringSlice("peer", []string{"192.0.2.1"}, "peer `ADDR`; repeatable")
	bfd := f.Bool("bfd", false, "use BFD")
	after := f.Duration("grace-period", 0, "time to wait")
	labels := f.StringToString("labels", nil, "labels")
	cmd.RunE = func(*cobra.Command, []string) error {
		*ran = strings.Join([]string{*name, strings.Join(*peers, "+"), after.String(), (*labels)["zone"]}, " ")
		if *bfd {
			*ran += " bfd"
		}
		return nil
	}
	GroupFlags(cmd, FlagGroup{"BGP", []string{"peer", "bf*"}})
	ConfigFile(cmd)
	root.AddCommand(cmd)
	return root
}

func runDaemon(t *testing.T, file string, args ...string) (ran, stderr string, code int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fairlead.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	root := daemon(&ran)
	var b strings.Builder
	root.SetErr(&b)
	root.SetOut(&b)
	code = Run(context.Background(), root, append([]string{"daemon", "--config", path}, args...))
	return ran, strings.ReplaceAll(b.String(), path, "FILE"), code
}

func TestConfigFile(t *testing.T) {
	const file = "name: lb1\npeer: [10.0.0.1, 10.0.0.2]\nbfd: true\ngrace-period: 5s\nlabels: {zone: a}\n"
	for _, c := range []struct {
		file string
		args []string
		want string
	}{
		{file, nil, "lb1 10.0.0.1+10.0.0.2 5s a bfd"},
		{file, []string{"--peer", "10.9.9.9", "--bfd=false"}, "lb1 10.9.9.9 5s a"},
		{"peer: 10.0.0.3\n", nil, "host 10.0.0.3 0s "},
		{"# nothing\n", nil, "host 192.0.2.1 0s "},
	} {
		if ran, stderr, code := runDaemon(t, c.file, c.args...); code != ExitGood || ran != c.want {
			t.Errorf("%q %v: %q, code %d: %s; want %q", c.file, c.args, ran, code, stderr, c.want)
		}
	}
}

// TestConfigErrors: all errors are reported at once, with their lines.
func TestConfigErrors(t *testing.T) {
	ran, stderr, code := runDaemon(t, "peers: [a]\ngrace-period: soon\nname: [a, b]\nbfd: yes please\nname: c\nlabels: {a: [b]}\nconfig: x\n")
	if ran != "" || code != ExitUsage {
		t.Errorf("%q, code %d", ran, code)
	}
	for _, want := range []string{
		`FILE:1: peers: unknown flag; did you mean "peer"?`, `FILE:2: grace-period: invalid argument "soon"`, "FILE:3: name: has one value, not a list",
		`FILE:4: bfd: invalid argument "yes please"`, "FILE:5: name: is set twice", "FILE:6: labels: has an item that is not a single value", "FILE:7: config: unknown flag",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
	for _, bad := range []string{"- a\n", "a: b: c\n"} {
		if _, stderr, code := runDaemon(t, bad); code != ExitUsage || !strings.Contains(stderr, "--config: ") {
			t.Errorf("%q: code %d: %s", bad, code, stderr)
		}
	}
}

func TestHelpGroupsFlags(t *testing.T) {
	var ran string
	root := daemon(&ran)
	var b strings.Builder
	root.SetOut(&b)
	if code := Run(context.Background(), root, []string{"daemon", "--help"}); code != ExitGood {
		t.Fatalf("code %d", code)
	}
	if got := wrap("a bb ccc dddd", 6, 2); got != "a bb\n  ccc\n  dddd" {
		t.Errorf("wrapped %q", got)
	}
	for _, want := range []string{
		"BGP flags:\n      --bfd         use BFD\n      --peer ADDR   peer ADDR; repeatable (default 192.0.2.1)\n\nOther flags:\n",
		"      --grace-period DURATION   time to wait\n", "  -h, --help ", "      --name NAME               NAME of this node (default host)\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}
