// Package targets lists what is fuzzed: all programs of bpf, by file. Add a new target
// here and nowhere else.
package targets

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/dsr"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/services"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/sockets"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/vdn"
)

// Target is an open target.
type Target interface {
	packetfuzz.Target
	Close() error
}

// Entry is a target that can be opened.
type Entry struct {
	Name string
	// Source is the programs' C file, and Object the compiled file, relative to the
	// module's root.
	Source, Object string
	// Open opens it, with an object of these programs, possibly with bugs. The caller's
	// goroutine must have its own thread (packetfuzz.OneCPU), which is in another network
	// namespace afterwards.
	Open func(object string) (Target, error)
}

// All are the targets.
var All = []Entry{
	{"balancer", "bpf/balancer.c", "dataplane/xdp/bpf/balancer_bpfel.o", open(balancer.New)},
	{"dsr", "bpf/dsr.c", "dataplane/dsr/dsr_bpfel.o", open(dsr.New)},
	{"services", "bpf/proxy_tc.c", "dataplane/proxy/packet/packet_bpfel.o", open(services.New)},
	{"sockets", "bpf/proxy.c", "dataplane/proxy/proxy_bpfel.o", open(sockets.New)},
	{"vdn", "bpf/vdn.c", "vdn/enforce/kernel/vdn_bpfel.o", open(vdn.New)},
}

func open[T Target](f func(string) (T, error)) func(string) (Target, error) {
	return func(object string) (Target, error) { return f(object) }
}

// ByName returns a target by its name.
func ByName(name string) (Entry, error) {
	for _, e := range All {
		if e.Name == name {
			return e, nil
		}
	}
	return Entry{}, fmt.Errorf("no target %q: want one of %v", name, Names())
}

// Names returns the names of all targets.
func Names() (names []string) {
	for _, e := range All {
		names = append(names, e.Name)
	}
	return names
}

// Root is the module's folder, with the programs and the fuzzer's data: the folder at
// compile time, unless it is set to another.
var Root = func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../..")
}()

// Data is the folder of stored corpora and cases.
func Data() string { return filepath.Join(Root, "lab/testkit/packetfuzz/testdata") }

// Corpus is a target's corpus.
func (e Entry) Corpus() string { return filepath.Join(Data(), "corpus", e.Name+".gz") }

// Cases is the folder of a target's cases that once violated its model.
func (e Entry) Cases() string { return filepath.Join(Data(), "cases", e.Name) }

// Keep stores the case of a failure where TestPackets runs it from then on, and returns
// the file's name.
func (e Entry) Keep(f *packetfuzz.Failure, hooks []string) (path string, err error) {
	text := f.Case.Text(hooks)
	sum := fnv.New32a()
	sum.Write([]byte(text))
	path = filepath.Join(e.Cases(), fmt.Sprintf("%08x.txt", sum.Sum32()))
	if err := os.MkdirAll(e.Cases(), 0o755); err != nil {
		return path, err
	}
	why := "# " + strings.ReplaceAll(f.Error(), "\n", "\n# ")
	return path, os.WriteFile(path, []byte(why+"\n"+text), 0o644)
}

// Stored reads the cases of a target, by file name.
func (e Entry) Stored(hooks []string) (map[string]*packetfuzz.Case, error) {
	files, err := filepath.Glob(filepath.Join(e.Cases(), "*.txt"))
	if err != nil {
		return nil, err
	}
	cases := map[string]*packetfuzz.Case{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if cases[filepath.Base(file)], err = packetfuzz.ParseCase(string(text), hooks); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return cases, nil
}
