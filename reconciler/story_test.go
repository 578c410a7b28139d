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

// A story is a txtar archive. What is before its files is the script: a line a
// command, and below a question the answer that it must get, behind "> ". The
// files are what the script writes. Everything between the folder of manifests
// and the data plane is the real thing; the data plane is the one in memory,
// which fails one call in ten.
//
//	write FILE [AS]         put a file into the folder of manifests, in one step
//	remove FILE             take it out of there
//	health SERVER STATE     what probes say from now on; "all" for every server
//	refuse WORD             let the data plane refuse a method or scheduler; "nothing" ends that
//	faults RATE             let calls to the data plane fail at another rate, and the agent try
//	node WORDS              what the cluster says of the node: cordoned, tainted, last (no other balancer
//	                        would be left), well
//	drain [undo]            what fairlead drain tells the agent
//	cloud STATE             what the program behind the cloud's webhook does from now on: answers, fails
//	                        (500), hangs, refuses (to withdraw anything)
//	restart                 end the agent and start another
//	kill                    start another in the place of one that is killed: what it announced by BGP is
//	                        gone, what it announced to the cloud is not
//	stop, start             the one and the other
//	reboot                  restart, and the data plane holds nothing any more
//
//	frontends               what the data plane holds
//	routes                  what is announced
//	led                     what the cloud leads here
//	status                  what an operator is told
//	writes                  what was changed in the data plane since this was last asked
//	packet CLIENT VIP [syn] which server the data plane chooses
//
// An answer that is not yet as it must be is asked for again, so a question
// whose answer was right before proves something only after one whose was not.
func TestStories(t *testing.T) {
	testkit.Stories(t, func(t *testing.T, path string) {
		t.Parallel()
		tell(t, path)
	})
}

// answerMark is before each line of an answer.
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

func tell(t *testing.T, path string) {
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

// patience is how long an answer may take on a busy machine; calm, how long it
// must stay the same to be written down.
const patience, calm = 30 * time.Second, 2 * time.Second

// ask asks until the answer is as wanted; when updating, until it stays.
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

// once says that a question changes what it asks about.
func once(s step) bool { return strings.HasPrefix(s.line, "packet ") }

// lines gives a text's lines; there is always one.
func lines(text string) []string {
	if text == "" {
		return []string{"nothing"}
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}
