package reconciler_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead/fairlead/lab/testkit"
)

var update = flag.Bool("update", false, "write what comes out into the stories of testdata")

// A story is a txtar archive. The text before the files is the script: one command per
// line, and below each query the expected answer, prefixed with "> ". The files are what
// the script writes. Everything between the manifest directory and the data plane is
// real; the data plane is in memory, and fails one call in ten.
//
//	write FILE [AS]         put a file into the manifest directory, atomically
//	remove FILE             remove it
//	health SERVER STATE     set the result of probes; "all" for every backend
//	refuse WORD             make the data plane reject a method or scheduler; "nothing" ends that
//	faults RATE             change the rate of failing data plane calls, and let the agent retry
//	node WORDS              set the node state: cordoned, tainted, last (no other load balancer
//	would be left), well
//	drain [undo]            what fairlead drain sends to the agent
//	cloud STATE             set the behavior of the cloud webhook: answers, fails (500), hangs,
//	refuses (to withdraw anything)
//	restart                 stop the agent and start another
//	kill                    replace the agent with a new one: its BGP routes are gone, its cloud
//	routes are not
//	stop, start             one of the two steps of restart
//	reboot                  restart with an empty data plane
//
//	frontends               what the data plane has
//	routes                  what is advertised
//	led                     what the cloud routes here
//	status                  what an operator sees
//	writes                  changes of the data plane since the last query
//	events TYPE...          what the journal has of these types
//	packet CLIENT VIP [syn] which backend the data plane chooses
//
// A query is repeated until its answer is as expected. A query whose answer was already
// correct before therefore only proves something after one whose answer was not.
func TestStories(t *testing.T) {
	testkit.Stories(t, func(t *testing.T, path string) {
		t.Parallel()
		runStory(t, path)
	})
}

// answerMark precedes each line of an answer.
const answerMark = "> "

// step is a line of a script, with the answer below it.
type step struct {
	line string
	want []string
}

func steps(script string) []step {
	var all []step
	for _, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		if answer, ok := strings.CutPrefix(line, answerMark); ok && len(all) > 0 {
			last := &all[len(all)-1]
			last.want = append(last.want, answer)
			continue
		}
		all = append(all, step{line: line})
	}
	return all
}

func script(all []step) string {
	var b strings.Builder
	for _, s := range all {
		b.WriteString(s.line + "\n")
		for _, w := range s.want {
			b.WriteString(answerMark + w + "\n")
		}
	}
	return b.String() + "\n"
}

func runStory(t *testing.T, path string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := steps(string(archive.Comment))
	w := newStage(t, archive.Files, slices.ContainsFunc(all, func(s step) bool { return strings.HasPrefix(s.line, "cloud ") }))
	asked := 0
	for i := range all {
		words := strings.Fields(all[i].line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		question, ok := w.questions()[words[0]]
		if !ok {
			if err := w.do(words); err != nil {
				t.Fatalf("%s: %v", all[i].line, err)
			}
			continue
		}
		asked++
		all[i].want = w.ask(all[i], func() string { return question(words[1:]) })
		if t.Failed() {
			return
		}
	}
	if asked == 0 {
		t.Error("the story asks nothing")
	}
	if *update {
		archive.Comment = []byte(script(all))
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// patience is the timeout for an answer on a busy machine; calm is how long an answer
// must be stable to be recorded.
const patience, calm = 30 * time.Second, 2 * time.Second

// ask repeats a query until the answer is as expected or, with -update, until it is
// stable.
func (w *stage) ask(s step, question func() string) []string {
	var answer []string
	same := time.Now()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		before := answer
		answer = lines(question())
		if !slices.Equal(answer, before) {
			same = time.Now()
		}
		if once(s) || !*update && slices.Equal(answer, s.want) || *update && time.Since(same) > calm {
			break
		}
	}
	if !*update && !slices.Equal(answer, s.want) {
		w.t.Errorf("%s\ngot:\n%s\nwant:\n%s\n(go test ./reconciler -update writes it again)",
			s.line, strings.Join(answer, "\n"), strings.Join(s.want, "\n"))
	}
	if s.line == "writes" {
		w.forgetWrites()
	}
	return answer
}

// once reports whether a query changes the state that it queries.
func once(s step) bool { return strings.HasPrefix(s.line, "packet ") }

// lines splits a text into lines, at least one.
func lines(text string) []string {
	if text == "" {
		return []string{"nothing"}
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}
