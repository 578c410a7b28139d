package faults_test

import (
	"testing"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
)

// web is the service of the paper that the scenarios use.
const web = 0

func TestMain(m *testing.M) { fixture.Main(m) }
