package features_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// objects are the compiled programs of each component.
var objects = map[features.Component]string{
	features.Balancer:    "../../dataplane/xdp/bpf/balancer_bpfel.o",
	features.DSRAgent:    "../../dataplane/dsr/dsr_bpfel.o",
	features.SocketProxy: "../../dataplane/proxy/proxy_bpfel.o",
	features.PacketProxy: "../../dataplane/proxy/packet/packet_bpfel.o",
	features.VDN:         "../../vdn/enforce/kernel/vdn_bpfel.o",
}

func collection(t *testing.T, c features.Component) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpec(filepath.FromSlash(objects[c]))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// uses returns what a collection uses, as rules.
func uses(spec *ebpf.CollectionSpec) map[string]bool {
	used := map[string]bool{}
	for name, m := range spec.Maps {
		if !strings.HasPrefix(name, ".") {
			used["map:"+strings.ToLower(m.Type.String())] = true
		}
		if m.InnerMap != nil {
			used["map:"+strings.ToLower(m.InnerMap.Type.String())] = true
		}
	}
	for _, p := range spec.Programs {
		used["prog:"+strings.ToLower(p.Type.String())] = true
		if p.Type == ebpf.CGroupSockAddr {
			used["attach:"+strings.ToLower(p.AttachType.String())] = true
		}
		for _, i := range p.Instructions {
			switch {
			case i.IsKfuncCall():
				used["kfunc:*"] = true
			case i.IsBuiltinCall():
				used["helper:"+strings.ToLower(strings.TrimPrefix(asm.BuiltinFunc(i.Constant).String(), "Fn"))] = true
			}
		}
	}
	return used
}

// inIterators are helpers that only the socket iterator calls, which is stripped with its
// program type.
var inIterators = map[string]bool{"helper:seqwrite": true}

// TestTableIsComplete compares the table with the compiled programs, in both directions.
func TestTableIsComplete(t *testing.T) {
	for c := range objects {
		used := uses(collection(t, c))
		listed := map[string]bool{}
		for _, f := range features.Table {
			for _, n := range f.Needs {
				if f.For(c) {
					listed[n.Rule()] = true
				}
			}
		}
		for rule := range used {
			if !listed[rule] && !inIterators[rule] {
				t.Errorf("%s uses %s, which the table does not list", c, rule)
			}
		}
		for rule := range listed {
			kind, _, _ := strings.Cut(rule, ":")
			known := kind == "map" || kind == "prog" || kind == "helper"
			if known && !used[rule] && rule != "map:arrayofmaps" { // the socket proxy creates one from Go
				t.Errorf("the table lists %s for %s, which does not use it", rule, c)
			}
		}
	}
}

// TestRowsAreWhole checks the required fields of every row.
func TestRowsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range features.Table {
		if seen[f.Name] {
			t.Errorf("%s is listed twice", f.Name)
		}
		seen[f.Name] = true
		if f.Since == "" || f.Without == "" || len(f.Needs) == 0 || len(f.Components) == 0 {
			t.Errorf("%s lacks a column: %+v", f.Name, f)
		}
	}
}

// TestPrintProbes probes everything. It prints the results, to compare kernels, and checks
// that each rejection is explained.
func TestPrintProbes(t *testing.T) {
	results := features.ProbeAll()
	line, err := json.Marshal(results)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("probes: %s\n", line)
	for _, r := range results {
		if !r.OK && (r.Message == "" || r.Lost == "" || r.Reason == "" || r.Reason == "other") {
			t.Errorf("%s is refused without an explanation: %+v", r.Feature, r)
		}
		if !r.OK && r.Essential && r.Feature != "ipvs" {
			t.Errorf("an essential feature is refused on this kernel: %+v", r)
		}
	}
}

// TestLoadWithout loads each component's programs without each of its optional
// features: what remains must still pass the verifier.
func TestLoadWithout(t *testing.T) {
	for c := range objects {
		for _, f := range features.Table {
			if f.Essential || !f.For(c) || !f.Removable() {
				continue
			}
			t.Run(string(c)+"/"+f.Name, func(t *testing.T) {
				missing := features.Missing{features.NewDegraded(f.Name, c, unix.EPERM)}
				for _, other := range features.ProbeAll(c) { // this kernel may reject some itself
					if !other.OK && other.Feature != f.Name {
						missing = append(missing, features.NewDegraded(other.Feature, c, unix.EPERM))
					}
				}
				spec := collection(t, c)
				missing.Strip(spec)
				loads(t, spec)
			})
		}
	}
}

// loads loads a collection with small maps.
func loads(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	for _, m := range spec.Maps {
		if m.MaxEntries > 64 && m.Type != ebpf.RingBuf && !strings.HasPrefix(m.Name, ".") {
			m.MaxEntries = 64
		}
		m.Pinning = ebpf.PinNone
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	c.Close()
}

// TestLoad has an attempt fail as on kernels that reject a feature.
func TestLoad(t *testing.T) {
	refused := errors.New("refused")
	spec := collection(t, features.SocketProxy)
	attempts := 0
	missing, err := features.Load(features.SocketProxy, spec, func(s *ebpf.CollectionSpec) error {
		attempts++
		for _, p := range s.Programs {
			for _, i := range p.Instructions {
				if i.IsBuiltinCall() && asm.BuiltinFunc(i.Constant) == asm.FnSetRetval {
					return fmt.Errorf("program %s: %w", p.Name, refused)
				}
			}
		}
		return nil
	})
	if err != nil || !missing.Has(features.RefusedErrno) {
		t.Fatalf("after %d attempts: missing %v, %v", attempts, missing, err)
	}
	if !errors.Is(missing.Err(features.RefusedErrno), features.ErrMissing) || missing.Err(features.Capture) != nil {
		t.Errorf("what is missing: %v", missing)
	}
	_, err = features.Load(features.SocketProxy, spec, func(*ebpf.CollectionSpec) error { return refused })
	if !errors.Is(err, refused) || strings.Contains(err.Error(), "\n") {
		t.Errorf("nothing helps: %v", err)
	}
}

// TestExplain states only causes that are known.
func TestExplain(t *testing.T) {
	_, verifier := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Return()}, // R0 is not set
	})
	report := &ebpf.VerifierError{Cause: unix.EACCES, Log: []string{ // as of Linux 7.3
		"0: R1=ctx() R10=fp0", "0: (95) exit", "R0 !read_ok", "", "Verification failed: Register Type Safety: Unreadable register", "",
		"Suggestion:", "  Initialize R0 on every path before this instruction.", "",
		"processed 1 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0",
	}}
	for name, c := range map[string]struct {
		err    error
		want   []string
		unlike string
	}{
		"report":    {fmt.Errorf("program p: %w", report), []string{"program p: ", "R0 !read_ok", "cause: the verifier rejected"}, "Suggestion"},
		"verifier":  {verifier, []string{"R0 !read_ok", "cause: the verifier rejected"}, "root"},
		"EPERM":     {unix.EPERM, []string{"EPERM", "operation not permitted", "check the LSM policy"}, "root"},
		"library":   {fmt.Errorf("map create: %w (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", unix.EPERM), []string{"map create: operation not permitted (EPERM)"}, "MEMLOCK"},
		"no errno":  {ebpf.ErrNotSupported, []string{"not supported", "fairlead doctor"}, "cause:"},
		"too old":   {&features.Refusal{Need: "x", Since: "99.1", Err: unix.EINVAL}, []string{"EINVAL", "cause: this kernel is Linux", "99.1"}, "check"},
		"no memory": {unix.ENOMEM, []string{"ENOMEM", "memory.max"}, "cause:"},
	} {
		text := features.Explain("load it", c.err).Error()
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q lacks %q", name, text, want)
			}
		}
		if strings.Contains(text, c.unlike) || strings.Contains(text, "\n") {
			t.Errorf("%s: %q", name, text)
		}
	}
	if features.Explain("load it", nil) != nil {
		t.Error("no error is explained")
	}
}

// TestMissingCapabilities drops capabilities of a thread: then, and only then, they are
// named as the cause.
func TestMissingCapabilities(t *testing.T) {
	text := make(chan string)
	go func() {
		runtime.LockOSThread() // permanently: the thread exits with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&header, &caps[0]); err != nil {
			text <- err.Error()
			return
		}
		for _, c := range []int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_ADMIN} {
			caps[c/32].Effective &^= 1 << (c % 32)
		}
		if err := unix.Capset(&header, &caps[0]); err != nil {
			text <- err.Error()
			return
		}
		_, err := features.Load(features.Balancer, collection(t, features.Balancer), func(s *ebpf.CollectionSpec) error {
			_, err := ebpf.NewCollection(s)
			return err
		})
		text <- fmt.Sprint(err)
	}()
	got := <-text
	for _, want := range []string{"EPERM", "cause: the process lacks CAP_BPF and CAP_PERFMON"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
