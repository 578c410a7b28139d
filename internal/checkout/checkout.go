// Package checkout finds the repository that tests run in. Non-Go dependencies of tests are
// built or unpacked there (out/).
package checkout

import (
	"fmt"
	"os"
	"path/filepath"
)

// Root returns the root directory of the repository, searching upward from the working
// directory, which is the package's directory in tests.
func Root() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is in no checkout of the repository, which has what is wanted in out/: run it in one", here)
		}
	}
}
