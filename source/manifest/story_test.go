package manifest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/source"
)

var update = flag.Bool("update", false, "write what comes out into the stories of testdata")

func equalServices(a, b *service.Service) bool { return reflect.DeepEqual(a, b) }

// TestStories runs txtar archives of steps: "1/web.yaml" is written (or removed, if it
// contains only "(removed)"), "1/restart" starts another agent, and when the directory is
// stable, the Services, Problems and stale objects must be "1/want".
func TestStories(t *testing.T) {
	testkit.Stories(t, story)
}

func story(t *testing.T, path string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l := newLooker(t)
	wants := 0
	for i, f := range archive.Files {
		step, name, _ := strings.Cut(f.Name, "/")
		switch text := string(f.Data); {
		case name == "want":
			wants++
			got := show(l.rest())
			if got != text && !*update {
				t.Errorf("step %s: got:\n%s\nwant:\n%s", step, got, text)
			}
			archive.Files[i].Data = []byte(got)
		case name == "restart":
			l.restart()
		case text == "(removed)\n":
			if err := os.Remove(filepath.Join(l.dir, name)); err != nil {
				t.Fatal(err)
			}
		default:
			l.write(name, text)
		}
	}
	if wants == 0 {
		t.Error("the story wants nothing")
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// show prints a snapshot, one item per line.
func show(s source.Snapshot) string {
	var b strings.Builder
	for _, svc := range s.Services {
		fmt.Fprintf(&b, "%s %s/%s/%d %s", svc.ID, svc.Method, svc.Scheduler, svc.RingSize, check(svc.Health))
		b.WriteString(options(svc))
		if !svc.Panic {
			b.WriteString(" no-panic")
		}
		if len(svc.Prefixes) > 0 {
			fmt.Fprintf(&b, " prefixes %v", svc.Prefixes)
		}
		if !svc.Created.IsZero() {
			fmt.Fprintf(&b, " of %s", svc.Created.Format("2006-01-02"))
		}
		fmt.Fprintf(&b, " (%s)\n", svc.Origin)
		for _, f := range svc.Frontends {
			fmt.Fprintf(&b, "  %s %q\n", f.Key, f.PortName)
			for _, be := range f.Backends {
				fmt.Fprintf(&b, "    %s weight %d %s\n", be.Addr, be.Weight, strings.TrimSpace(more(be)+" "+be.Name+" "+be.Node))
			}
		}
		for _, e := range svc.Validate() {
			fmt.Fprintf(&b, "  INVALID %s\n", e)
		}
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "! %s\n", p)
	}
	for _, o := range s.Stale {
		fmt.Fprintf(&b, "stale: %s (%s) of %s\n", o.Object, o.Where, o.Service)
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

// options prints settings that differ from the defaults.
func options(s *service.Service) string {
	var b strings.Builder
	if s.Encapsulation != "" && s.Encapsulation != service.DefaultEncapsulation {
		fmt.Fprintf(&b, " %s", s.Encapsulation)
	}
	if s.Survival != service.SecondChance {
		fmt.Fprintf(&b, " survival %s", s.Survival)
	}
	if s.Affinity > 0 {
		fmt.Fprintf(&b, " affinity %s", s.Affinity)
	}
	if len(s.Allow) > 0 {
		fmt.Fprintf(&b, " allow %v", s.Allow)
	}
	if len(s.Deny) > 0 {
		fmt.Fprintf(&b, " deny %v", s.Deny)
	}
	if l := s.Limits; l != (service.Limits{}) {
		fmt.Fprintf(&b, " limits %d/%d %d/%d", l.ClientPackets, l.ClientOpens, l.Packets, l.Opens)
	}
	return b.String()
}

// more prints a backend's settings other than its weight.
func more(b service.Backend) (words string) {
	if b.MaxConns > 0 {
		words += fmt.Sprintf("max %d ", b.MaxConns)
	}
	if !b.Since.IsZero() {
		words += "since " + b.Since.Format(time.RFC3339)
	}
	return words
}

func check(h service.HealthCheck) string {
	switch {
	case h == service.DefaultHealthCheck:
		return "tcp"
	case h.Kind == service.CheckNone:
		return "none"
	}
	s := fmt.Sprintf("%s %s/%s %d/%d", h.Kind, h.Interval, h.Timeout, h.Rise, h.Fall)
	if h.Port != 0 {
		s += fmt.Sprintf(" port %d", h.Port)
	}
	if h.Kind == service.CheckHTTP {
		s += " " + h.Host + h.Path
	}
	return s
}
