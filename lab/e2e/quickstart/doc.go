// Package quickstart contains only an end-to-end test: it follows docs/getting-started.md
// on machines of the lab, with the files and commands copied from the page.
package quickstart
