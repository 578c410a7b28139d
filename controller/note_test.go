package controller

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLongMessage checks that a message that is too long is truncated between two
// characters.
func TestLongMessage(t *testing.T) {
	c := with(nil, metav1.Condition{Type: "Accepted", Message: "x" + strings.Repeat("→", 400)})[0]
	if !utf8.ValidString(c.Message) || len(c.Message) > 1024 || !strings.HasSuffix(c.Message, "→...") {
		t.Errorf("%d bytes, ending in %q", len(c.Message), c.Message[max(0, len(c.Message)-10):])
	}
}
