package quickstart_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// step is a section of the page that starts with a number.
type step struct {
	title string
	text  string
	// blocks are its code blocks by language, with the paragraph before each.
	blocks []block
}

type block struct{ language, text, before string }

var (
	heading = regexp.MustCompile(`(?m)^## (?:\d+\. )?(.*)$`)
	fence   = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
)

// steps reads the sections of a page, by title.
func steps(t *testing.T, page string) map[string]step {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]step{}
	at := heading.FindAllSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		s := step{title: string(text[m[2]:m[3]]), text: string(text[m[1]:end])}
		s.blocks = blocks(s.text)
		all[s.title] = s
	}
	return all
}

func blocks(text string) (all []block) {
	last := 0
	for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
		before := strings.TrimSpace(text[last:m[0]])
		all = append(all, block{text[m[2]:m[3]], text[m[4]:m[5]], before[strings.LastIndex(before, "\n")+1:]})
		last = m[1]
	}
	return all
}

// commands are the lines of the i-th shell block.
func (s step) commands(t *testing.T, i int) []string {
	t.Helper()
	var shell []string
	for _, b := range s.blocks {
		if b.language == "sh" {
			shell = append(shell, b.text)
		}
	}
	if i >= len(shell) {
		t.Fatalf("section %q has %d shell blocks, want more than %d", s.title, len(shell), i)
	}
	return strings.Split(strings.TrimSpace(shell[i]), "\n")
}

var fileName = regexp.MustCompile("`([\\w.-]+\\.yaml)`")

// files are the YAML blocks whose paragraph names a file.
func (s step) files() map[string]string {
	all := map[string]string{}
	for _, b := range s.blocks {
		if m := fileName.FindStringSubmatch(b.before); m != nil && b.language == "yaml" {
			all[m[1]] = b.text
		}
	}
	return all
}
