package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of hand-written code, in lines. Tests may have longer functions, because of
// tables of cases.
const (
	maxFile     = 600
	maxFunction = 60
)

// Limits of a package, without tests and generated files.
const (
	maxPackageLines = 3000
	maxPackageFiles = 20
)

// manyFiles are the packages that may have more files: one for each subcommand.
var manyFiles = []string{"cmd/fairlead"}

// clocked are the functions that read or wait for the wall clock.
var clocked = map[string][]string{
	"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
}

// Faults reads all Go and C code in a folder and returns violations of the rules that
// apply to one file or one package: one line each.
func Faults(root string) ([]string, error) {
	f := faults{root: root, comments: map[string][]string{}, sizes: map[string]size{}}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (name == "testdata" || name == "out" || strings.HasPrefix(name, ".") || isModule(path)) {
			return filepath.SkipDir
		}
		if entry.IsDir() {
			return nil
		}
		return f.file(path)
	})
	if err != nil {
		return nil, err
	}
	f.packages()
	slices.Sort(f.found)
	return f.found, nil
}

// isModule reports whether a folder is a separate module, with its own rules.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

type faults struct {
	root  string
	found []string
	// comments are the files with a package comment, by package folder; every
	// package has an entry.
	comments map[string][]string
	// sizes are those of the packages, by folder.
	sizes map[string]size
}

type size struct{ files, lines int }

func (f *faults) add(where, format string, args ...any) {
	f.found = append(f.found, where+": "+fmt.Sprintf(format, args...))
}

func (f *faults) file(path string) error {
	check := map[string]func(string, []byte) error{".go": f.goFile, ".c": f.cFile, ".h": f.cFile}[filepath.Ext(path)]
	if check == nil {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(f.root, path)
	if err != nil {
		return err
	}
	return check(filepath.ToSlash(rel), text)
}

func (f *faults) goFile(rel string, text []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, rel, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	folder, isTest := filepath.Dir(rel), strings.HasSuffix(rel, "_test.go")
	if !isTest {
		seen := f.comments[folder]
		if file.Doc != nil {
			seen = append(seen, rel)
		}
		f.comments[folder] = seen
	}
	if ast.IsGenerated(file) {
		return nil
	}
	f.length(rel, text)
	if isTest {
		return nil
	}
	s := f.sizes[folder]
	f.sizes[folder] = size{s.files + 1, s.lines + bytes.Count(text, []byte("\n"))}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			begin, end := set.Position(fn.Pos()).Line, set.Position(fn.End()).Line
			f.function(rel, begin, end, fn.Name.Name)
		}
	}
	if slices.Contains(pure, filepath.ToSlash(folder)) {
		f.clock(set, rel, file)
	}
	f.templates(set, rel, file)
	f.logKeys(set, rel, file)
	return nil
}

// templating are functions that make text/template reachable. It calls methods by name, so
// that the linker keeps every exported method: fairlead grows by 8 MB.
var templating = []string{"SetUsageTemplate", "SetHelpTemplate", "SetVersionTemplate", "AddTemplateFunc", "AddTemplateFuncs"}

func (f *faults) templates(set *token.FileSet, rel string, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(templating, s.Sel.Name) {
			f.add(fmt.Sprintf("%s:%d", rel, set.Position(s.Pos()).Line), "%s makes text/template part of the binary, and with it every exported method", s.Sel.Name)
		}
		return true
	})
}

func (f *faults) length(rel string, text []byte) {
	if n := bytes.Count(text, []byte("\n")); n > maxFile {
		f.add(rel, "%d lines: split it by idea, %d is the most", n, maxFile)
	}
}

func (f *faults) function(rel string, begin, end int, name string) {
	if n := end - begin + 1; n > maxFunction {
		f.add(fmt.Sprintf("%s:%d", rel, begin), "%s has %d lines: give its parts names, %d is the most", name, n, maxFunction)
	}
}

// clock finds uses of the wall clock, under any import name.
func (f *faults) clock(set *token.FileSet, rel string, file *ast.File) {
	names := map[string][]string{}
	for _, i := range file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := path
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = clocked[path]
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(names[x.Name], sel.Sel.Name) {
			f.add(fmt.Sprintf("%s:%d", rel, set.Position(sel.Pos()).Line),
				"%s.%s in a pure package: take the time as an argument", x.Name, sel.Sel.Name)
		}
		return true
	})
}

// cFile checks C in the kernel's style, where a function's body is between braces in the
// first column.
func (f *faults) cFile(rel string, text []byte) error {
	f.length(rel, text)
	begin, before := 0, ""
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		switch line = strings.TrimRight(line, "\n"); {
		case line == "{":
			begin = number
		case line == "}" && begin > 0:
			f.function(rel, begin, number, strings.TrimSpace(before))
			begin = 0
		case begin == 0:
			before = line
		}
	}
	return nil
}

// packages requires exactly one package comment for each package.
func (f *faults) packages() {
	for _, folder := range slices.Sorted(maps.Keys(f.comments)) {
		switch files := f.comments[folder]; {
		case len(files) == 0:
			f.add(folder, "no package comment: say what lives there, and what may not")
		case len(files) > 1:
			f.add(folder, "%d package comments (%s): keep one", len(files), strings.Join(files, ", "))
		}
	}
	for folder, s := range f.sizes {
		if s.lines > maxPackageLines || s.files > maxPackageFiles && !slices.Contains(manyFiles, filepath.ToSlash(folder)) {
			f.add(folder, "%d files with %d lines: split the package by subject, %d files and %d lines are the most", s.files, s.lines, maxPackageFiles, maxPackageLines)
		}
	}
}
