// Package suggest guesses which known word a misspelt one was meant to be.
package suggest

import (
	"fmt"
	"strings"
)

// DidYouMean gives `; did you mean "protocol"?` where one of the known words
// is near enough to a misspelt one, else nothing.
func DidYouMean(word string, known []string) string {
	if best := Nearest(word, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// Nearest gives the known word that a word was most likely meant to be: one
// that it begins, else one within a third of its length in edits. Case does
// not count.
func Nearest(word string, known []string) string {
	word = strings.ToLower(word)
	best, least := "", (len(word)+2)/3+1
	for _, k := range known {
		lower := strings.ToLower(k)
		if len(word) >= 3 && strings.HasPrefix(lower, word) {
			return k
		}
		if d := edits(word, lower, least); d < least {
			best, least = k, d
		}
	}
	return best
}

// edits counts the insertions, removals and replacements between two words,
// as far as limit.
func edits(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
