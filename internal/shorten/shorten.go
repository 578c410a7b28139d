// Package shorten truncates long texts at a character boundary.
package shorten

import "strings"

// EventNote is the maximum length of an event note in bytes. The API server accepts 1024.
const EventNote = 1000

// Text returns at most most bytes of text, followed by "..." if it was truncated.
func Text(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
