package keepalived

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/source/importer"
)

// node is a statement: words, optionally followed by a block in braces.
type node struct {
	at    importer.At
	words []string
	block []*node
	// braces is true if it has a block.
	braces bool
}

func (n *node) word() string { return n.arg(0) }

// arg returns the i-th word, or "".
func (n *node) arg(i int) string {
	if i >= len(n.words) {
		return ""
	}
	return n.words[i]
}

// title returns the first two words.
func (n *node) title() string { return shown(n.words[:min(len(n.words), 2)]) }

func (n *node) String() string { return shown(n.words) }

// shown joins words and makes an empty one visible.
func shown(words []string) string {
	if text := strings.TrimSpace(strings.Join(words, " ")); text != "" {
		return text
	}
	return `""`
}

// maxDepth limits the nesting of blocks; keepalived's are five deep.
const maxDepth = 50

// parse converts lines to a tree.
func parse(lines []line) ([]*node, error) {
	root := &node{}
	open := []*node{root}
	var last *node // the directly preceding statement
	for _, l := range lines {
		tokens, err := split(l)
		if err != nil {
			return nil, err
		}
		var words []string
		flush := func() {
			if len(words) > 0 {
				last = &node{at: l.at, words: words}
				top := open[len(open)-1]
				top.block = append(top.block, last)
				words = nil
			}
		}
		for _, t := range tokens {
			switch {
			case t.brace == '{':
				flush()
				if last == nil || last.braces {
					return nil, syntax(l.at, "a { without a word before it")
				}
				if len(open) > maxDepth {
					return nil, syntax(l.at, fmt.Sprintf("blocks are nested deeper than %d", maxDepth))
				}
				last.braces = true
				open = append(open, last)
				last = nil
			case t.brace == '}':
				flush()
				if len(open) == 1 {
					return nil, syntax(l.at, "a } too many, or a { is missing before")
				}
				open, last = open[:len(open)-1], nil
			default:
				words = append(words, t.text)
			}
		}
		flush()
	}
	if n := open[len(open)-1]; n != root {
		return nil, syntax(n.at, fmt.Sprintf("the block %s is never closed: a } is missing", n.title()))
	}
	return root.block, nil
}

func syntax(at importer.At, message string) error {
	return &importer.SyntaxError{At: at, Message: message}
}

// token is a word or a brace.
type token struct {
	text  string
	brace byte
}

// split splits a line into words and braces. Quotes group words and are removed; a
// "${name}" that was not replaced is part of a word.
func split(l line) (tokens []token, err error) {
	var word strings.Builder
	inWord, quoted := false, false
	end := func() {
		if inWord {
			tokens = append(tokens, token{text: word.String()})
		}
		word.Reset()
		inWord = false
	}
	s := l.text
	last := strings.LastIndexByte(s, '}')
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"':
			quoted, inWord = !quoted, true
		case c == '\\' && i+1 < len(s):
			if i++; s[i] != '"' && s[i] != '\\' {
				word.WriteByte('\\')
			}
			word.WriteByte(s[i])
			inWord = true
		case !quoted && (c == ' ' || c == '\t'):
			end()
		case !quoted && c == '$' && i < last && s[i+1] == '{':
			n := strings.IndexByte(s[i:], '}') + 1
			word.WriteString(s[i : i+n])
			inWord = true
			i += n - 1
		case !quoted && (c == '{' || c == '}'):
			end()
			tokens = append(tokens, token{brace: c})
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	end()
	if quoted {
		return nil, syntax(l.at, "a quotation mark that is not closed")
	}
	return tokens, nil
}
