package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// List returns the packages of the module in a folder, and all their dependencies, as
// reported by the go command. Paths of the standard library begin with "std:".
func List(folder string) ([]Package, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,TestImports,XTestImports,Module", "./...")
	cmd.Dir = folder
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &stderr)
	}
	return decode(&stdout)
}

// listed is the output of go list for a package.
type listed struct {
	ImportPath                         string
	Standard                           bool
	Imports, TestImports, XTestImports []string
	Module                             *struct{ Main bool }
}

func decode(r io.Reader) ([]Package, error) {
	var all []listed
	standard := map[string]bool{"C": true, "unsafe": true}
	for dec := json.NewDecoder(r); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("output of go list: %w", err)
		}
		standard[l.ImportPath] = l.Standard
		all = append(all, l)
	}
	named := func(paths []string) []string {
		short := make([]string, len(paths))
		for i, p := range paths {
			switch known, ok := standard[p]; {
			case known, !ok && !strings.Contains(first(p), "."): // tests' imports are not listed
				short[i] = "std:" + p
			default:
				short[i] = strings.TrimPrefix(p, module+"/")
			}
		}
		return short
	}
	packages := make([]Package, len(all))
	for i, l := range all {
		packages[i] = Package{Path: named([]string{l.ImportPath})[0], Imports: named(l.Imports)}
		if l.Module != nil && l.Module.Main {
			packages[i].TestImports = named(append(l.TestImports, l.XTestImports...))
		}
	}
	return packages, nil
}
