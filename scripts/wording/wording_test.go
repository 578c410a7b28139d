package main

import (
	"strings"
	"testing"
)

// TestWrongAndRight: retired senses are found where they stand, and correct uses of the
// same words pass.
func TestWrongAndRight(t *testing.T) {
	for _, c := range []struct{ path, src, want string }{
		{"a.go", "package a\n\n// Beside it, the agent tells\n// who is told.\nvar heldWeight, x = 1, \"done anew\"\n", "Beside tells told held weight anew"},
		{"a.go", "package a\n\n// The server\n// half is here.\n", "server half"},
		{"a.go", "package a\n\nvar tellDrains, BesideFRR, untold int\n", "tell beside"},
		{"a.c", "/* what is\n * said */\nint poke_it; /* \"x\" */\n", "is said poke"},
		{"a.md", "A stranger goes on, and `mends` it.\n", "mends stranger goes on"},
		{"a.md", "Tell the two apart. For good reason, go on to the next step.\n", ""},
		{"a.md", "connection refused; API server; --since 1h; amended; recommend; shear\n", ""},
		{"a.go", "package a\n\nvar amend, retell, cheared int\n", ""},
		{"a.bin", "told\n", ""},
		{"zz_generated.go", "package a\n\n// told\n", ""},
	} {
		var found []string
		for _, f := range check(c.path, []byte(c.src)) {
			found = append(found, f.text)
		}
		if got := strings.Join(found, " "); got != c.want {
			t.Errorf("%s: %q: found %q, want %q", c.path, c.src, got, c.want)
		}
	}
}

func TestLinesAndAdvice(t *testing.T) {
	found := check("x/a.go", []byte("package a\n\n// One.\n// Two anew.\n"))
	if len(found) != 1 || found[0].String() != `x/a.go:4: "anew" is retired: say again, from scratch` {
		t.Errorf("%v", found)
	}
}
