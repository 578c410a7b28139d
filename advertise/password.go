package advertise

import "strings"

// Password returns the password in a file or a Secret: its first line without the line
// ending.
func Password(text string) string {
	line, _, ended := strings.Cut(text, "\n")
	if ended {
		line = strings.TrimSuffix(line, "\r")
	}
	return line
}
