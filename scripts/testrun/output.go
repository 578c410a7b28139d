package main

import (
	"fmt"
	"strings"
)

// Of the output of one failed test, the beginning (where a panic is) and the end
// (where a log usually gets interesting) are kept.
const (
	headLines = 40
	tailLines = 80
)

// output is what one test prints, bounded.
type output struct {
	head, tail []string
	omitted    int
	partial    bool // the last line has no end yet
}

// add takes a piece of output as go test -json gives it: mostly a line.
func (o *output) add(text string) {
	for line := range strings.Lines(text) {
		if o.partial {
			o.extend(line)
		} else {
			o.append(line)
		}
		o.partial = !strings.HasSuffix(line, "\n")
	}
}

func (o *output) append(line string) {
	if len(o.head) < headLines {
		o.head = append(o.head, line)
		return
	}
	if o.tail = append(o.tail, line); len(o.tail) > tailLines {
		o.tail = o.tail[1:]
		o.omitted++
	}
}

func (o *output) extend(text string) {
	lines := o.head
	if len(o.tail) > 0 {
		lines = o.tail
	}
	lines[len(lines)-1] += text
}

// lines gives the output without the lines that go test adds to each test.
func (o *output) lines() []string {
	var all []string
	add := func(lines []string) {
		for _, l := range lines {
			if l = strings.TrimRight(l, "\n"); !framing(l) {
				all = append(all, l)
			}
		}
	}
	add(o.head)
	if o.omitted > 0 {
		all = append(all, fmt.Sprintf("    … %d lines omitted …", o.omitted))
	}
	add(o.tail)
	for len(all) > 0 && strings.TrimSpace(all[len(all)-1]) == "" {
		all = all[:len(all)-1]
	}
	return all
}

// framing reports whether a line only repeats what an event of go test -json says.
func framing(line string) bool {
	trimmed := strings.TrimSpace(line)
	for _, prefix := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME ", "--- FAIL: ", "--- PASS: ", "--- SKIP: ", "FAIL\t", "ok  \t", "?   \t", "exit status "} {
		if strings.HasPrefix(trimmed, prefix) {
			return true
		}
	}
	return trimmed == "PASS" || trimmed == "FAIL"
}
