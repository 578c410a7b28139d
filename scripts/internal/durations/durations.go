// Package durations reads the file that says how many seconds the tests of packages take.
// scripts/testrun writes it.
package durations

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Read returns the seconds by package path, relative to the module. A file that does not
// exist is empty.
func Read(name string) (map[string]float64, error) {
	seconds := map[string]float64{}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return seconds, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		var s float64
		var p string
		if _, err := fmt.Sscan(line, &s, &p); err != nil {
			return nil, fmt.Errorf("%s: %q: want seconds and a package", name, strings.TrimSpace(line))
		}
		seconds[p] = s
	}
	return seconds, nil
}
