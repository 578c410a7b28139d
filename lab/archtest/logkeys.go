package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/logging"
)

// logCalls are the methods of slog that take keys and values, with the number of arguments
// before these.
var logCalls = map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0, "Log": 3, "Any": 0, "String": 0, "Int": 0, "Duration": 0}

// noLog are the folders whose logs users do not read.
var noLog = []string{"lab", "scripts", "tools"}

// logKeys requires that log lines use the keys of internal/logging.
func (f *faults) logKeys(set *token.FileSet, rel string, file *ast.File) {
	if slices.Contains(noLog, first(rel)) {
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		for _, key := range keysOf(call) {
			if _, known := logging.Keys[key]; !known {
				f.add(fmt.Sprintf("%s:%d", rel, set.Position(call.Pos()).Line), "log key %q: use one of logging.Keys, or add it there and to docs/logs.md", key)
			}
		}
		return true
	})
}

// keysOf returns the keys in a call of slog; none for other calls.
func keysOf(call *ast.CallExpr) (keys []string) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	before, ok := logCalls[s.Sel.Name]
	if !ok || !isLogger(s.X) {
		return nil
	}
	for i := before; i < len(call.Args); i += 2 {
		switch arg := call.Args[i].(type) {
		case *ast.BasicLit:
			key, _ := strconv.Unquote(arg.Value) // the compiler has accepted it
			keys = append(keys, key)
		case *ast.CallExpr: // slog.Any(key, value), which is found by itself
			i--
		}
	}
	return keys
}

// isLogger reports whether an expression is named like a logger: slog, log, x.Log, x.Log.With(…).
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "slog" || x.Name == "log"
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "log")
	case *ast.CallExpr:
		s, ok := x.Fun.(*ast.SelectorExpr)
		return ok && s.Sel.Name == "With" && isLogger(s.X)
	}
	return false
}
