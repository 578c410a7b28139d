// Package suggest guesses which known word a misspelled one was meant to be.
package suggest

import (
	"fmt"
	"strings"
)

// DidYouMean returns `; did you mean "protocol"?` if a known word is close enough to word,
// else "".
func DidYouMean(word string, known []string) string {
	if best := Nearest(word, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// Nearest returns the known word that word most likely stands for: one that starts with it,
// else the closest within an edit distance of a third of its length. Case is ignored.
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

// edits returns the edit distance between two words, up to limit.
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
