package durations

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "durations")
	if seconds, err := Read(name); err != nil || len(seconds) != 0 {
		t.Errorf("without a file: %v, %v", seconds, err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# seconds\n40 slow\n5 near\n\n10.5 far/away\n")
	if seconds, err := Read(name); err != nil || len(seconds) != 3 || seconds["slow"] != 40 || seconds["far/away"] != 10.5 {
		t.Errorf("%v, %v", seconds, err)
	}
	write("fast core\n")
	if _, err := Read(name); err == nil || !strings.Contains(err.Error(), `"fast core": want seconds and a package`) {
		t.Errorf("a wrong line: %v", err)
	}
}
