package shorten

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestText checks that truncated text is valid UTF-8 and as long as the limit permits.
func TestText(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 50), strings.Repeat("ü", 50), strings.Repeat("→", 50), strings.Repeat("😀", 50), "x" + strings.Repeat("😀", 50)} {
		for most := range len(text) + 2 {
			got := Text(text, most)
			cut, was := strings.CutSuffix(got, "...")
			switch {
			case !utf8.ValidString(got):
				t.Fatalf("%d of %q gives %q", most, text, got)
			case most >= len(text) && got != text:
				t.Fatalf("%d of %q gives %q, want all", most, text, got)
			case most < len(text) && (!was || !strings.HasPrefix(text, cut) || len(cut) > most || len(cut) <= most-utf8.UTFMax):
				t.Fatalf("%d of %q gives %q", most, text, got)
			}
		}
	}
}
