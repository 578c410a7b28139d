package advertise

import "strings"

// Password gives the password that a file or a Secret has: its first line, however
// that ends; empty where there is none.
func Password(text string) string {
	line, _, ended := strings.Cut(text, "\n")
	if ended {
		line = strings.TrimSuffix(line, "\r")
	}
	return line
}
