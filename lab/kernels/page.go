package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const intro = `# Kernels

Fairlead's kernel-dependent tests run in virtual machines with Debian's cloud kernels (` + "`make test-kernels`" + `): the BPF programs are loaded and run, IPVS, resilient next-hop groups and L2 advertisements are exercised through netlink, and every feature that Fairlead can use is probed. This page is generated from [kernels.json](kernels.json); ` + "`make test-kernels ARGS=-update`" + ` refreshes both.

`

// page renders docs/kernels.md.
func page(r Results) string {
	var b strings.Builder
	b.WriteString(intro)
	kernelTable(&b, r)
	featureTable(&b, r)
	testTable(&b, r)
	b.WriteString(notes() + limits)
	return b.String()
}

func kernelTable(b *strings.Builder, r Results) {
	b.WriteString("| kernel | run on | how | duration | tests passed | failed | skipped |\n|---|---|---|---|---|---|---|\n")
	for _, k := range r.Kernels {
		var all Suite
		for _, s := range k.Suites {
			all.Passed = append(all.Passed, s.Passed...)
			all.Failed = append(all.Failed, s.Failed...)
			all.Skipped = append(all.Skipped, s.Skipped...)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %d | %d | %d |\n", k.title(), k.Date, k.how(), minutes(k.Seconds),
			len(all.Passed), len(topLevel(all.Failed)), len(all.Skipped))
	}
}

func (k Kernel) title() string {
	if k.Series == "newest" {
		return k.Release + " (newest in Debian's backports)"
	}
	return k.Release
}

func (k Kernel) how() string {
	how := "KVM, all tests"
	if k.Accel != "kvm" {
		how = "emulated, selected tests"
	}
	if !k.Complete {
		how += "; incomplete"
	}
	return how
}

func minutes(seconds int) string { return fmt.Sprintf("%d min", (seconds+59)/60) }

// topLevel is the tests of a list without subtests.
func topLevel(tests []string) []string {
	return slices.DeleteFunc(slices.Clone(tests), func(t string) bool { return strings.Contains(t, "/") })
}

func header(b *strings.Builder, first string, r Results) {
	fmt.Fprintf(b, "\n| %s |", first)
	for _, k := range r.Kernels {
		fmt.Fprintf(b, " %s |", k.Release)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(r.Kernels)) + "\n")
}

func featureTable(b *strings.Builder, r Results) {
	var features, refusals []string
	for _, k := range r.Kernels {
		for _, p := range k.Probes {
			if !slices.Contains(features, p.Feature) {
				features = append(features, p.Feature)
			}
			if !p.OK {
				refusals = append(refusals, fmt.Sprintf("- %s, %s: %s\n", k.Release, p.Feature, p.Message))
			}
		}
	}
	if len(features) == 0 {
		return
	}
	b.WriteString("\n## Features\n")
	header(b, "feature", r)
	for _, f := range features {
		fmt.Fprintf(b, "| %s |", f)
		for _, k := range r.Kernels {
			fmt.Fprintf(b, " %s |", k.answer(f))
		}
		b.WriteString("\n")
	}
	if len(refusals) > 0 {
		b.WriteString("\nWhat these kernels answer where a feature is missing:\n\n" + strings.Join(refusals, ""))
	}
}

func (k Kernel) answer(feature string) string {
	i := slices.IndexFunc(k.Probes, func(p Probe) bool { return p.Feature == feature })
	switch {
	case i < 0:
		return "not probed"
	case k.Probes[i].OK:
		return "yes"
	}
	return "**no**"
}

func testTable(b *strings.Builder, r Results) {
	var packages []string
	for _, s := range suites {
		packages = append(packages, s.Package)
	}
	b.WriteString("\n## Tests\n\nTop-level tests per package. A failed subtest fails its test; a skipped one does not count.\n")
	header(b, "package", r)
	for _, p := range packages {
		fmt.Fprintf(b, "| %s |", p)
		for _, k := range r.Kernels {
			fmt.Fprintf(b, " %s |", k.outcome(p))
		}
		b.WriteString("\n")
	}
	details(b, r)
}

func (k Kernel) outcome(pkg string) string {
	i := slices.IndexFunc(k.Suites, func(s Suite) bool { return s.Package == pkg })
	if i < 0 {
		return "not run"
	}
	s := k.Suites[i]
	words := []string{fmt.Sprintf("%d passed", len(s.Passed))}
	if n := len(topLevel(s.Failed)); n > 0 {
		words = append(words, fmt.Sprintf("**%d failed**", n))
	}
	if n := len(s.Skipped); n > 0 {
		words = append(words, fmt.Sprintf("%d skipped", n))
	}
	if s.Problem != "" {
		words = append(words, "**did not end cleanly**")
	}
	return strings.Join(words, ", ")
}

// details lists the failed and skipped tests by name.
func details(b *strings.Builder, r Results) {
	var failed, skipped []string
	for _, k := range r.Kernels {
		for _, s := range k.Suites {
			for _, t := range s.Failed {
				failed = append(failed, fmt.Sprintf("- %s, %s: %s\n", k.Release, s.Package, t))
			}
			if s.Problem != "" {
				failed = append(failed, fmt.Sprintf("- %s, %s: %s\n", k.Release, s.Package, s.Problem))
			}
			for _, t := range s.Skipped {
				skipped = append(skipped, fmt.Sprintf("- %s, %s: %s: %s\n", k.Release, s.Package, t.Test, cmp.Or(t.Reason, "no reason given")))
			}
		}
	}
	for _, list := range []struct {
		title string
		rows  []string
	}{{"Failed", failed}, {"Skipped", skipped}} {
		if len(list.rows) > 0 {
			fmt.Fprintf(b, "\n%s:\n\n%s", list.title, strings.Join(list.rows, ""))
		}
	}
}

// notes lists what no guest runs and what only guests with KVM run.
func notes() string {
	var excluded, selected []string
	for _, s := range suites {
		for _, e := range s.NotRun {
			excluded = append(excluded, fmt.Sprintf("- %s, %s: %s\n", s.Package, names(e.Tests), e.Reason))
		}
		if s.Emulated != "" {
			selected = append(selected, fmt.Sprintf("- %s: %s\n", s.Package, names(s.Emulated)))
		}
	}
	text := ""
	if len(excluded) > 0 {
		text += "\n## Not run in a guest\n\n" + strings.Join(excluded, "")
	}
	return text + "\n## Emulated guests\n\n" + emulation + "\n" + strings.Join(selected, "")
}

// names makes a list of a regular expression for whole names.
func names(expression string) string {
	return strings.ReplaceAll(strings.ReplaceAll(expression, ".*", "…"), "|", ", ")
}

const emulation = `A guest uses KVM if it boots with it. That ` + "`/dev/kvm`" + ` exists is not enough: nested KVM without hardware virtualization (PVM) runs only kernels built for it. Otherwise the guest is emulated, which is 10 to 30 times slower. Emulated guests run all tests of a package, except in these packages, where they run only:
`

const limits = `
## Not covered

Kubernetes' conformance tests of Services (` + "`make test-cluster`" + `) run on the kernel of the host only. They were not run in a guest: an emulated one is 10 to 30 times slower than what the timeouts of kubelet, the API server and the tests assume. Debian's cloud kernels have no 9p, so a guest would share the host's files by virtiofs (built into 6.12 and later, a module in 6.1).
`
