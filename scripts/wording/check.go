package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// finding is a retired word in a line of a file.
type finding struct {
	path string
	line int
	text string // as it stands there
	rule *rule
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q is retired: %s", f.path, f.line, f.text, f.rule.say)
}

// piece is a run of text that starts in a line: prose, or one identifier.
type piece struct {
	line  int
	text  string
	ident bool
}

// check returns the retired words of a file. Generated files and files of other kinds have none.
func check(path string, src []byte) []finding {
	if exempt(path) {
		return nil
	}
	var found []finding
	for _, p := range pieces(path, src) {
		found = append(found, match(path, p)...)
	}
	return found
}

// exempt files are generated, or list retired words as their purpose.
func exempt(path string) bool {
	base := filepath.Base(path)
	return strings.HasPrefix(path, "scripts/wording/") || strings.HasPrefix(path, "LICENSES/") ||
		strings.HasPrefix(base, "zz_generated") || strings.HasSuffix(base, "_bpfel.go") ||
		path == "CHANGELOG.md"
}

func pieces(path string, src []byte) []piece {
	switch filepath.Ext(path) {
	case ".go":
		return goPieces(src)
	case ".c", ".h":
		return cPieces(string(src))
	case ".md", ".yaml", ".yml", ".sh", ".tpl", ".json", ".toml", ".conf", ".service", ".html", ".css", ".js":
		return linePieces(string(src))
	}
	if base := filepath.Base(path); base == "Makefile" || base == "README" {
		return linePieces(string(src))
	}
	return nil
}

func linePieces(src string) []piece {
	var out []piece
	for i, line := range strings.Split(src, "\n") {
		out = append(out, piece{line: i + 1, text: line})
	}
	return out
}

func goPieces(src []byte) []piece {
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	s.Init(file, src, nil, scanner.ScanComments)
	var out []piece
	for {
		pos, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return joined(out)
		case token.COMMENT, token.STRING:
			for i, line := range strings.Split(text, "\n") {
				out = append(out, piece{line: file.Line(pos) + i, text: line})
			}
		case token.IDENT:
			out = append(out, piece{line: file.Line(pos), text: text, ident: true})
		}
	}
}

var cTokens = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|[A-Za-z_][A-Za-z0-9_]*`)

func cPieces(src string) []piece {
	var out []piece
	line, at := 1, 0
	for _, m := range cTokens.FindAllStringIndex(src, -1) {
		line += strings.Count(src[at:m[0]], "\n")
		at = m[0]
		text := src[m[0]:m[1]]
		if c := text[0]; c != '/' && c != '"' {
			out = append(out, piece{line: line, text: text, ident: true})
			continue
		}
		for i, l := range strings.Split(text, "\n") {
			out = append(out, piece{line: line + i, text: l})
		}
	}
	return joined(out)
}

// joined adds, to each line of prose that another follows, a piece across the break, so that
// phrases are found there, too.
func joined(in []piece) []piece {
	var out []piece
	for i, p := range in {
		out = append(out, p)
		if i+1 < len(in) && !p.ident && !in[i+1].ident && in[i+1].line == p.line+1 {
			a, b := words(p.text), words(in[i+1].text)
			if len(a) > 0 && len(b) > 0 {
				out = append(out, piece{line: p.line, text: strings.Join(tail(a, 3), " ") + "\n" + strings.Join(b[:min(3, len(b))], " ")})
			}
		}
	}
	return out
}

func words(s string) []string { return strings.Fields(strings.Trim(s, "/* \t")) }

func tail(s []string, n int) []string { return s[max(0, len(s)-n):] }

func match(path string, p piece) []finding {
	var found []finding
	text := p.text
	broken := strings.Contains(text, "\n")
	if p.ident {
		text = spaced(text)
	}
	for i := range rules {
		r := &rules[i]
		if p.ident && !r.idents || r.outside != nil && r.outside.MatchString(path) {
			continue
		}
		for _, m := range r.re.FindAllStringIndex(text, -1) {
			hit := text[m[0]:m[1]]
			if broken && !strings.Contains(hit, "\n") { // found in its own line
				continue
			}
			if r.except != nil && r.except.MatchString(around(text, m)) {
				continue
			}
			found = append(found, finding{path: path, line: p.line, text: strings.ReplaceAll(hit, "\n", " "), rule: r})
		}
	}
	return found
}

// around is the match with 24 bytes on either side.
func around(text string, m []int) string {
	return text[max(0, m[0]-24):min(len(text), m[1]+24)]
}

// spaced splits an identifier into lower-case words: heldWeight, held_weight -> held weight.
func spaced(id string) string {
	var b strings.Builder
	last := rune(0)
	for _, c := range id {
		if c == '_' {
			c = ' '
		} else if unicode.IsUpper(c) && (unicode.IsLower(last) || unicode.IsDigit(last)) {
			b.WriteByte(' ')
		}
		last = c
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
