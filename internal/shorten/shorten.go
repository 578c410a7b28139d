// Package shorten cuts texts that are too long for where they go, between two
// characters.
package shorten

import "strings"

// EventNote is how many bytes of a note are given to an API server, which takes 1024.
const EventNote = 1000

// Text gives at most so many bytes of a text, and "..." where that is not all.
func Text(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
