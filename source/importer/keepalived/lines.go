package keepalived

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/source/importer"
)

// line is a line without comments and with all replacements made.
type line struct {
	at   importer.At
	text string
}

const (
	// maxLines, maxLine and maxText limit the expansion of definitions and includes: lines,
	// bytes per line, and total bytes read and written.
	maxLines = 100_000
	maxLine  = 64 << 10
	maxText  = 64 << 20
	// maxIncluded limits the nesting of includes.
	maxIncluded = 16
)

// expander follows includes, evaluates conditions and replaces definitions.
type expander struct {
	options Options
	defs    map[string]string
	lines   []line
	losses  []importer.Loss
	handled int
	// spent counts the bytes read and written.
	spent int
	// opened is the definition that continues in the next line, body its text so far.
	opened string
	body   strings.Builder
	// files are the files being read, innermost last.
	files []string
}

// expand returns the effective lines of a file and its includes.
func expand(f File, o Options) ([]line, []importer.Loss, error) {
	e := &expander{options: o, defs: map[string]string{}}
	if err := e.file(f); err != nil {
		return nil, nil, err
	}
	return e.lines, e.losses, nil
}

func (e *expander) lose(at importer.At, what, why, fix string) {
	e.losses = append(e.losses, importer.Loss{At: at, What: what, Why: why, Fix: fix})
}

func (e *expander) file(f File) error {
	e.files = append(e.files, f.Name)
	defer func() { e.files = e.files[:len(e.files)-1] }()
	number := 0
	for text := range strings.Lines(string(f.Text)) {
		number++
		at := importer.At{File: f.Name, Line: number}
		if err := e.spend(at, text); err != nil {
			return err
		}
		text, err := uncomment(at, strings.TrimRight(text, "\r\n"))
		if err != nil {
			return err
		}
		if err := e.take(at, text, 0); err != nil {
			return err
		}
	}
	e.shut()
	return nil
}

// spend accounts for a text that is read or written.
func (e *expander) spend(at importer.At, text string) error {
	if len(text) > maxLine {
		return syntax(at, fmt.Sprintf("a line of more than %d bytes", maxLine))
	}
	if e.spent += len(text); e.spent > maxText {
		return syntax(at, fmt.Sprintf("definitions and includes come to more than %d bytes", maxText))
	}
	return nil
}

// uncomment removes the comment of a line, and surrounding spaces.
func uncomment(at importer.At, s string) (string, error) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"':
			quoted = !quoted
		case c == '\\' && i+1 < len(s):
			if i++; quoted || s[i] != '#' && s[i] != '!' {
				b.WriteByte('\\')
			}
			c = s[i]
		case !quoted && (c == '#' || c == '!'):
			return strings.TrimSpace(b.String()), nil
		}
		b.WriteByte(c)
	}
	if quoted {
		return "", syntax(at, "a quotation mark that is not closed")
	}
	return strings.TrimSpace(b.String()), nil
}

// take processes a line of a file or of a definition: either part of another definition, or
// a line by itself.
func (e *expander) take(at importer.At, text string, depth int) error {
	if e.opened == "" {
		return e.handle(at, text, depth)
	}
	text, more := strings.CutSuffix(text, `\`)
	e.body.WriteString(strings.TrimSpace(text) + "\n")
	if e.body.Len() > maxLine {
		return syntax(at, fmt.Sprintf("definition %s has more than %d bytes", e.opened, maxLine))
	}
	if !more {
		e.shut()
	}
	return nil
}

// shut completes the open definition.
func (e *expander) shut() {
	if e.opened != "" {
		e.defs[e.opened] = e.body.String()
	}
	e.opened = ""
	e.body.Reset()
}

var definition = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)$`)

// handle processes a line by itself.
func (e *expander) handle(at importer.At, text string, depth int) error {
	if e.handled++; e.handled > maxLines {
		return syntax(at, fmt.Sprintf("definitions and includes come to more than %d lines", maxLines))
	}
	if depth > maxDepth {
		return syntax(at, fmt.Sprintf("definitions are nested deeper than %d", maxDepth))
	}
	for range maxDepth {
		if err := e.spend(at, text); err != nil {
			return err
		}
		if strings.HasPrefix(text, "@") {
			text = e.condition(at, text)
		}
		if text == "" {
			return nil
		}
		if m := definition.FindStringSubmatch(text); m != nil {
			value, more := strings.CutSuffix(m[2], `\`)
			e.defs[m[1]] = strings.TrimSpace(value)
			if more {
				e.opened = m[1]
				e.body.WriteString(e.defs[m[1]] + "\n")
			}
			return nil
		}
		if strings.HasPrefix(text, "~") {
			return e.repeat(at, text, depth)
		}
		before, value, after, found := e.find(text)
		switch {
		case !found:
			return e.plain(at, text)
		case strings.Contains(value, "\n"):
			return e.many(at, before+value+after, depth)
		}
		var err error
		if text, err = uncomment(at, before+value+after); err != nil {
			return err
		}
	}
	return syntax(at, "a definition of itself")
}

// sequence is "~SEQ(name, first, step, last) line"; with "x", hexadecimal.
var sequence = regexp.MustCompile(`^~SEQ(x?)\(([^)]*)\)[ \t]*(.*)$`)

// repeat processes a line once for each value of a sequence.
func (e *expander) repeat(at importer.At, text string, depth int) error {
	m := sequence.FindStringSubmatch(text)
	if m == nil {
		e.lose(at, text, "only ~SEQ repeats lines", "write the lines out")
		return nil
	}
	name, values, _ := strings.Cut(m[2], ",")
	first, step, last, err := bounds(strings.Split(values, ","))
	if err != nil {
		e.lose(at, text, err.Error(), "write the lines out")
		return nil
	}
	format := map[string]string{"": "%d", "x": "%x"}[m[1]]
	for n := first; step > 0 && n <= last || step < 0 && n >= last; n += step {
		e.defs[strings.TrimSpace(name)] = fmt.Sprintf(format, n)
		if err := e.take(at, m[3], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// bounds parses "last", "first, last" or "first, step, last".
func bounds(values []string) (first, step, last int64, err error) {
	var all []int64
	for _, v := range values {
		n, err := strconv.ParseInt(strings.TrimSpace(v), 0, 32)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%q is not a number", v)
		}
		all = append(all, n)
	}
	last, step = all[len(all)-1], 1
	if last < 0 {
		step = -1
	}
	first = step
	if len(all) > 1 {
		if first = all[0]; first > last {
			step = -1
		} else {
			step = 1
		}
	}
	if len(all) > 2 {
		step = all[1]
	}
	if step == 0 || len(all) > 3 {
		return 0, 0, 0, fmt.Errorf("that is no sequence")
	}
	return first, step, last, nil
}

// many processes the lines of a multi-line definition.
func (e *expander) many(at importer.At, text string, depth int) error {
	for l := range strings.Lines(text) {
		if err := e.take(at, strings.TrimSpace(l), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// condition returns what follows "@id" or "@^id", if the condition holds.
func (e *expander) condition(at importer.At, text string) string {
	id, rest, _ := strings.Cut(strings.ReplaceAll(text[1:], "\t", " "), " ")
	id, not := strings.CutPrefix(id, "^")
	counts := (id == e.options.ConfigID) != not
	if e.options.ConfigID == "" {
		verdict := map[bool]string{true: "it counts", false: "it does not count"}[counts]
		e.lose(at, text[:1]+map[bool]string{true: "^"}[not]+id, "which machine this is for was not said: "+verdict, "pass --config-id")
	}
	if !counts {
		return ""
	}
	return strings.TrimSpace(rest)
}

// A definition is used as ${NAME}, or as $NAME before a space, a comma, a bracket or the
// end.
var use = regexp.MustCompile(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*)(?:[ \t,)]|$))`)

// find returns the first use of a definition in a line.
func (e *expander) find(text string) (before, value, after string, found bool) {
	for from := 0; ; {
		m := use.FindStringSubmatchIndex(text[from:])
		if m == nil {
			return text, "", "", false
		}
		begin, end := m[0], m[1]
		var name string
		if m[2] >= 0 {
			name = text[from+m[2] : from+m[3]]
		} else {
			name, end = text[from+m[4]:from+m[5]], m[5]
		}
		if value, found = e.defs[name]; found {
			return text[:from+begin], value, text[from+end:], true
		}
		from += end
	}
}

var include = regexp.MustCompile(`^include[rmwba]?[ \t]+(.+)$`)

// plain processes a line without uses of definitions.
func (e *expander) plain(at importer.At, text string) error {
	m := include.FindStringSubmatch(text)
	if m == nil {
		e.lines = append(e.lines, line{at, text})
		return nil
	}
	pattern := strings.Trim(strings.TrimSpace(m[1]), `"`)
	if len(e.files) > maxIncluded {
		return syntax(at, fmt.Sprintf("files include each other more than %d deep", maxIncluded))
	}
	var files []File
	var err error
	if e.options.Include != nil {
		files, err = e.options.Include(e.files[len(e.files)-1], pattern)
	}
	if len(files) == 0 {
		why := "there is no such file here"
		if err != nil {
			why = err.Error()
		}
		e.lose(at, "include "+pattern, why, "import on the machine where keepalived runs, or copy its files, too")
	}
	for _, f := range files {
		if err := e.file(f); err != nil {
			return fmt.Errorf("included by %s: %w", at, err)
		}
	}
	return nil
}
