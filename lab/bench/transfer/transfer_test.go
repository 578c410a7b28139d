package transfer_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/bench/transfer"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestServeRefuses(t *testing.T) {
	var out bytes.Buffer
	if err := transfer.Serve(t.Context(), strings.NewReader("{\"sent\":true}\n{}\n{\"stop\":true}\n"), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], "no transfer is running") || !strings.Contains(lines[2], "unknown order") || lines[3] != "{}" {
		t.Errorf("%q", lines)
	}
}
