package yamltree

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// notUTF8 returns an error for the first invalid byte or control character, or nil. UTF-16
// with a byte order mark is left to the library.
func notUTF8(text []byte) *Error {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		why := ""
		switch {
		case r == utf8.RuneError && size == 1:
			why = fmt.Sprintf("byte 0x%02x is not UTF-8; save the file as UTF-8", text[i])
		case r < ' ' && r != '\n' && r != '\r' && r != '\t':
			why = fmt.Sprintf("contains the control character %U", r)
		}
		if why != "" {
			return &Error{1 + bytes.Count(text[:i], []byte("\n")), why}
		}
		i += size
	}
	return nil
}

// lookAlikes are characters that word processors and web pages use instead of those with a
// meaning in YAML.
const lookAlikes = "\u00a0\u2002\u2003\u2007\u2009\u200b\u200c\u200d\u200e\u200f\u2010\u2011\u2012\u2013\u2014\u2018\u2019\u201c\u201d\u2028\u2029\u202f\u2060\u3000\ufeff\uff0d\uff1a"

// yamlHint returns the likely cause of an error in a line, or "". The cause may be on the
// previous line.
func yamlHint(text []byte, line int, message string) string {
	lines := strings.Split(string(text), "\n")
	for _, n := range []int{line, line - 1} {
		if n < 1 || n > len(lines) {
			continue
		}
		l := strings.TrimRight(lines[n-1], "\r")
		i := strings.IndexAny(l, lookAlikes)
		switch {
		case strings.HasPrefix(l, "<<<<<<<"), strings.HasPrefix(l, "======="), strings.HasPrefix(l, ">>>>>>>"):
			return fmt.Sprintf("; line %d is of a merge conflict that is not resolved", n)
		case strings.Contains(l, "{%"), strings.Contains(l, "{{"):
			return fmt.Sprintf("; line %d looks like a template that was not rendered", n)
		case strings.Contains(indentation(l), "\t") && !strings.Contains(message, "tab"):
			return fmt.Sprintf("; line %d is indented with a tab, and YAML wants spaces", n)
		case i >= 0:
			r, _ := utf8.DecodeRuneInString(l[i:])
			return fmt.Sprintf("; line %d contains %U, which only looks like a character of YAML", n, r)
		}
	}
	return ""
}

func indentation(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

// jsonHint returns the likely cause of a syntax error, or "".
func jsonHint(text []byte, line int, message string) string {
	_, after, _ := strings.Cut(message, "invalid character ")
	switch {
	case strings.HasPrefix(after, "'}' looking for beginning of object key"), strings.HasPrefix(after, "']' looking for beginning of value"):
		return "; the comma before it is one too many"
	case strings.HasPrefix(after, `'\''`), strings.HasPrefix(after, "'\\u201c'"), strings.HasPrefix(after, "'“'"):
		return `; JSON has texts in double quotes (")`
	case strings.HasPrefix(after, "'/'"), strings.HasPrefix(after, "'#'"):
		return "; JSON has no comments"
	case line == 1 && strings.Contains(after, "looking for beginning of value") && !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		return "; where it is YAML, let its name end in .yaml"
	}
	return ""
}
