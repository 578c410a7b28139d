package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead/fairlead/internal/yamltree"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/source/object"
)

// FuzzFile writes an arbitrary text over the base. Nothing may panic, a rejected object
// must keep its previous version, and what is served must be valid.
func FuzzFile(f *testing.F) {
	f.Add(false, []byte(base))
	f.Add(false, []byte(base[:len(base)/2]))
	f.Add(false, []byte("a: &a [*a]\n"))
	f.Add(false, []byte("a: &a {<<: *a}\nkind: Service\napiVersion: v1\n"))
	f.Add(false, []byte("a: &a x\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nkind: List\napiVersion: v1\nitems: *c\n"))
	f.Add(false, []byte("? [a]\n: b\nkind: Service\napiVersion: v1\n"))
	f.Add(false, []byte("!!binary kind: !foo Service\napiVersion: !!str 1\n"))
	f.Add(true, []byte(`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"}}`))
	f.Add(true, []byte(strings.Repeat("[", 1000)))
	f.Add(true, []byte(`{"a":{"b":[1,2e3,null,true,"\ud800"`))
	stories, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range stories {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if !strings.HasSuffix(file.Name, "want") {
				f.Add(strings.HasSuffix(file.Name, ".json"), file.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, isJSON bool, text []byte) {
		fuzzlimit.Time(t)
		name := map[bool]string{true: "web.json", false: "web.yaml"}[isJSON]
		was := &file{}
		was.take(parseFile("web.yaml", []byte(base)), moment)
		was.text = []byte(base)
		now := &file{objects: was.objects}
		p := parseFile(name, text)
		now.take(p, moment)
		now.text = text
		checkKept(t, was, now, p)
		checkRestored(t, now, now.state("", "web.yaml", was.state("", "web.yaml", fileState{})))
		for _, problem := range now.problems {
			_, line, _ := strings.Cut(problem.Where, ":")
			if n, err := strconv.Atoi(line); err != nil || n < 1 || n > yamltree.Lines(text) || problem.Message == "" {
				t.Errorf("%+v: want a line from 1 to %d and a message", problem, yamltree.Lines(text))
			}
		}
		services, _ := new(joiner).join(now.objects, byKey(now.objects), p.refused)
		for _, s := range services {
			if errs := s.Validate(); len(errs) > 0 {
				t.Errorf("an invalid Service is served: %v", errs)
			}
		}
	})
}

// checkRestored checks that a restarted agent has the same objects, and knows which of them
// are stale.
func checkRestored(t *testing.T, was *file, st fileState) {
	t.Helper()
	now := &file{}
	now.restore(st)
	keys := func(f *file) (all []string) {
		for _, o := range f.objects {
			all = append(all, fmt.Sprintf("%s:%d %v", o.Key, o.Line, f.stale[o.Key]))
		}
		slices.Sort(all)
		return all
	}
	if !slices.Equal(keys(was), keys(now)) || now.lost != "" {
		t.Errorf("after a restart there is %q, %q, and before there was %q", keys(now), now.lost, keys(was))
	}
}

// moment is when files are accepted in tests.
var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// checkKept checks that previous objects are retained, unless a fully valid text no longer
// has them.
func checkKept(t *testing.T, was, now *file, p *parsed) {
	t.Helper()
	if p.broken && !slices.Equal(was.objects, now.objects) {
		t.Error("a broken text changed the objects")
	}
	has := map[object.Key]bool{}
	for _, o := range now.objects {
		if has[o.Key] {
			t.Errorf("%s is there twice", o.Key)
		}
		has[o.Key] = true
	}
	for _, o := range was.objects {
		refused := slices.ContainsFunc(p.refused, func(k object.Key) bool { return k == o.Key || k == object.Key{} })
		if refused && !has[o.Key] {
			t.Errorf("%s was refused and is lost", o.Key)
		}
	}
	if len(p.refused) > 0 && len(p.problems) == 0 {
		t.Errorf("%v were refused without a word", p.refused)
	}
}

// TestBillionLaughs checks that nested aliases cost no more than a multiple of the text's
// size.
func TestBillionLaughs(t *testing.T) {
	text := "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  managedFields:\n  - fieldsV1:\n      a: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 20 {
		n := strconv.Itoa(i)
		text += "      b" + n + ": &a" + strconv.Itoa(i+1) + " [" + strings.Repeat("*a"+n+", ", 9) + "*a" + n + "]\n"
	}
	start := time.Now()
	p := parseFile("web.yaml", []byte(text))
	if len(p.problems) != 1 || !strings.Contains(p.problems[0].Message, "unfold without measure") {
		t.Errorf("got %v", p.problems)
	}
	if took := time.Since(start); took > patience {
		t.Errorf("took %s", took)
	}
}

// BenchmarkParse reads ten thousand Services with one slice each.
func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	for i := range 10000 {
		text.WriteString(strings.ReplaceAll(base, "web", "web"+strconv.Itoa(i)) + "---\n")
	}
	for b.Loop() {
		if p := parseFile("web.yaml", []byte(text.String())); len(p.objects) != 20000 {
			b.Fatal(p.problems)
		}
	}
	b.SetBytes(int64(text.Len()))
}

// BenchmarkChange changes one Service among ten thousand, in its own file.
func BenchmarkChange(b *testing.B) {
	dir := b.TempDir()
	d := newFolder(dir)
	for i := range 10000 {
		n := strconv.Itoa(i)
		text := strings.ReplaceAll(strings.ReplaceAll(base, "web", "web"+n), "service-name: web", "service-name: web"+n)
		if err := os.WriteFile(filepath.Join(dir, "web"+n+".yaml"), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	now := time.Now().Add(time.Hour)
	d.look(now)
	d.snapshot()
	i := 0
	for b.Loop() {
		i++
		text := strings.ReplaceAll(base, "172.16.1.3", "172.16.2."+strconv.Itoa(i%250+1))
		if err := os.WriteFile(filepath.Join(dir, "x.yaml"), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		d.look(now.Add(time.Duration(i) * time.Minute))
		d.look(now.Add(time.Duration(i)*time.Minute + settle))
		d.snapshot()
	}
}

// TestHalfWrittenJSON checks that a truncated JSON file keeps its previous content.
func TestHalfWrittenJSON(t *testing.T) {
	const whole = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`
	f := &file{}
	f.take(parseFile("web.json", []byte(whole)), moment)
	held := len(f.objects)
	if held == 0 {
		t.Fatalf("nothing is held: %v", f.problems)
	}
	for n := 1; n < len(whole); n++ {
		f.take(parseFile("web.json", []byte(whole[:n])), moment)
		if len(f.objects) != held || len(f.problems) == 0 {
			t.Fatalf("after %s: %d objects, %v", whole[:n], len(f.objects), f.problems)
		}
	}
}
