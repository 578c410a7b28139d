package main

import (
	"testing"

	"github.com/fairlead/fairlead/cmd/internal/clitest"
)

func TestExamplesInTheHelpAreRight(t *testing.T) {
	program := clitest.Program{Name: "fairlead-demo", New: newRootCommand}
	program.CheckExamples(t)
}
