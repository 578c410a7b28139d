package cli

import (
	"cmp"
	"encoding/json"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Texts returns values as plain strings, as completion and messages need them.
func Texts[S ~string](values []S) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// PrintJSON writes a value as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// IsTerminal reports whether a writer is a terminal.
func IsTerminal(w io.Writer) bool { return TerminalWidth(w) > 0 }

// TerminalWidth returns the columns of a terminal, and 0 for anything else.
func TerminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	const usual = 80 // a terminal that does not know its size reports 0
	return cmp.Or(int(size.Col), usual)
}
