package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// TestWriteIsAllOrNothing checks that a failed read leaves the old file and no temporary
// files.
func TestWriteIsAllOrNothing(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "plan")
	for _, text := range []string{"first", "second"} {
		if err := Write(file, 0o640, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	torn := errors.New("torn")
	if err := Write(file, 0o600, iotest.ErrReader(torn)); !errors.Is(err, torn) {
		t.Errorf("got %v", err)
	}
	if err := Write(filepath.Join(folder, "none", "x"), 0o600, strings.NewReader("")); err == nil {
		t.Error("written into no folder")
	}
	text, err := os.ReadFile(file)
	info, infoErr := os.Stat(file)
	left, listErr := os.ReadDir(folder)
	if err := errors.Join(err, infoErr, listErr); err != nil || string(text) != "second" || info.Mode() != 0o640 || len(left) != 1 {
		t.Errorf("%q of mode %v, %d files, %v", text, info.Mode(), len(left), err)
	}
}
