package main

import (
	"fmt"
	"strings"
)

// Of the output of one failed test, the beginning (which contains a panic) and the end
// (where a log usually gets interesting) are retained.
const (
	headLines = 40
	tailLines = 80
)

// output is the output of one test, with limited size.
type output struct {
	head, tail []string
	omitted    int
	partial    bool // the last line is not complete yet
}

// add adds a piece of output as reported by go test -json: usually a line.
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

// lines returns the output without the lines that go test adds to each test.
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
