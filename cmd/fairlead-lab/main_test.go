package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/cmd/internal/clitest"
	"github.com/fairlead/fairlead/internal/limit"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fairlead-lab": main})
}

// TestScripts runs the command lines in testdata/script. There, "failed
// COMMAND..." and "usage COMMAND..." require exit codes 1 and 2.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"failed": clitest.Exits(cli.ExitFailed), "usage": clitest.Exits(cli.ExitUsage),
		},
	})
}

var program = clitest.Program{Name: "fairlead-lab", New: newRootCommand}

func TestCommandsInThePagesAreRight(t *testing.T) { program.CheckPages(t) }

func TestExamplesInTheHelpAreRight(t *testing.T) { program.CheckExamples(t) }

// TestWrongCommandsAreFound checks that the checks above can fail.
func TestWrongCommandsAreFound(t *testing.T) {
	for _, line := range []string{
		"fairlead-lab", "fairlead-lab agent", "fairlead-lab demo --nosuch", "fairlead-lab demo extra", "bin/fairlead-lab sim rnu",
		`make demo ARGS="--method`, `make demo ARGS="--nosuch 1"`, "make tset", "ip route",
	} {
		if program.CheckLine(line) == nil {
			t.Errorf("%s passes", line)
		}
	}
}

// TestScenariosAreBounded checks that a file that is too long is rejected by name,
// however it is read.
func TestScenariosAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, limit.Text+1); err != nil { // takes no space on disk
		t.Fatal(err)
	}
	_, direct := scenarioIn(path)
	_, named := filesNextTo("x.yaml")(path)
	for _, err := range []error{direct, named} {
		var long *limit.TooLong
		if !errors.As(err, &long) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want one that names the file and the limit", err)
		}
	}
}
