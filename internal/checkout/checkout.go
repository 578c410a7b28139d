// Package checkout finds the repository that tests run in, where what they need
// beyond Go is built or unpacked (out/).
package checkout

import (
	"fmt"
	"os"
	"path/filepath"
)

// Root is the repository's folder, looked for from the working directory
// upward: tests run in their package's folder.
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
