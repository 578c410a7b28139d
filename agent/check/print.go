package check

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Format is an output format.
type Format string

// Formats.
const (
	Text   Format = "text"
	JSON   Format = "json"
	GitHub Format = "github" // annotations of GitHub Actions
)

// Formats lists the formats.
var Formats = []Format{Text, JSON, GitHub}

func (f *Format) String() string { return string(*f) }

// Type is the type of the value in a help text.
func (f *Format) Type() string { return "FORMAT" }

// Set rejects an unknown format.
func (f *Format) Set(s string) error {
	if !slices.Contains(Formats, Format(s)) {
		return fmt.Errorf("unknown output format %q: use text, json or github", s)
	}
	*f = Format(s)
	return nil
}

// foundJSON is a finding in JSON.
type foundJSON struct {
	Finding
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Print writes findings.
func Print(w io.Writer, found []Finding, f Format) error {
	if f == JSON {
		all := make([]foundJSON, len(found))
		for i, one := range found {
			all[i] = foundJSON{Finding: one}
			all[i].File, all[i].Line = one.Position()
		}
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	for _, one := range found {
		line := one.String()
		if f == GitHub {
			line = one.annotation()
		}
		if _, err := fmt.Fprintln(w, printable(line)); err != nil {
			return err
		}
	}
	return nil
}

// printable replaces control characters, which may move a terminal's cursor.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '\uFFFD'
		}
		return r
	}, line)
}

// annotation formats a finding as a workflow command of GitHub Actions.
func (f Finding) annotation() string {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	file, line := f.Position()
	rest := f.Problem
	rest.Where = ""
	return fmt.Sprintf("::%s file=%s,line=%d,title=%s::%s", f.Severity, property.Replace(file), max(line, 1), f.Rule, data.Replace(rest.String()))
}

// Verdict returns an error that counts the findings if there are errors or, if strict,
// warnings.
func Verdict(found []Finding, strict bool) error {
	errs := 0
	for _, f := range found {
		if f.Severity == Error {
			errs++
		}
	}
	if errs == 0 && !(strict && len(found) > 0) {
		return nil
	}
	return fmt.Errorf("%s, %s", count(errs, "error"), count(len(found)-errs, "warning"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
