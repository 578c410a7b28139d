// Conformance runs Kubernetes' own conformance tests of Services against a service proxy
// in a cluster of two real nodes (lab/kube/nodes), prints each result, and leaves nothing
// behind but logs. Its exit code is 0 if all have passed.
//
//	go run ./lab/kube/conformance -proxy fairlead
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/kube/nodes"
)

// proxies are the service proxies that can be tested.
const proxies = "fairlead, nftables or iptables (kube-proxy's modes), or none, with which the tests fail"

// choose returns a service proxy by its name; fairlead is the program.
func choose(name, fairlead string) (nodes.Proxy, error) {
	switch name {
	case "fairlead":
		path, err := filepath.Abs(fairlead)
		if err == nil {
			_, err = os.Stat(path)
		}
		return nodes.Fairlead(path), err
	case "nftables", "iptables":
		return nodes.KubeProxy(name), nil
	case "none":
		return nil, nil
	}
	return nil, fmt.Errorf("-proxy %s: the service proxy is %s", name, proxies)
}

func main() {
	name := flag.String("proxy", "fairlead", "the service `proxy`: "+proxies)
	fairlead := flag.String("fairlead", "bin/fairlead", "the `program`, for -proxy fairlead")
	focus := flag.String("focus", `\[sig-network\] Services.*\[Conformance\]`, "the tests to run, a regular `expression`")
	logs := flag.String("logs", "out/kube/log", "the `folder` for logs")
	limit := flag.Duration("limit", 20*time.Minute, "how long all may take")
	flag.Parse()
	proxy, err := choose(*name, *fairlead)
	if flag.NArg() > 0 {
		err = errors.Join(err, fmt.Errorf("unexpected arguments: %q", flag.Args()))
	}
	began := time.Now()
	nodes.Job{
		Name: "conformance", Programs: []string{"e2e.test", "kubectl", "kube-proxy"}, Logs: *logs, Limit: *limit,
		Prepare: func(o nodes.Options) (nodes.Options, error) {
			o.Proxy, *logs = proxy, o.Logs
			return o, nil
		},
		Do: func(ctx context.Context, c *nodes.Cluster) error {
			fmt.Printf("two nodes and their proxies are ready after %.1f s\n", time.Since(began).Seconds())
			return judge(ctx, c, *focus, *logs)
		},
	}.Main(err)
}

// judge runs the tests, and returns an error if one fails.
func judge(ctx context.Context, c *nodes.Cluster, focus, logs string) error {
	began := time.Now()
	specs, err := test(ctx, c, focus, logs)
	if err != nil {
		return err
	}
	failed := report(specs)
	fmt.Printf("%d tests, %d failed, %.0f s\n", len(specs), failed, time.Since(began).Seconds())
	if failed > 0 || len(specs) == 0 {
		return fmt.Errorf("%d of %d tests failed: see %s", failed, len(specs), logs)
	}
	return nil
}

// spec is a test's outcome in Ginkgo's report (its types.SpecReport).
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// test runs the tests whose names match, and returns those that have run. Failed tests
// are not an error.
func test(ctx context.Context, c *nodes.Cluster, focus, logs string) ([]spec, error) {
	log, err := os.Create(filepath.Join(logs, "e2e.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	result := filepath.Join(logs, "e2e.json")
	cmd := exec.Command(filepath.Join(c.Binaries, "e2e.test"),
		"--kubeconfig", c.Kubeconfig, "--kubectl-path", filepath.Join(c.Binaries, "kubectl"),
		"--provider", "skeleton", "--num-nodes", fmt.Sprint(len(c.Nodes)), "--disable-log-dump",
		"--ginkgo.focus", focus, "--ginkgo.json-report", result, "--ginkgo.no-color", "--ginkgo.timeout", "1h")
	cmd.Stdout, cmd.Stderr = log, log
	p, err := c.Control.Start(cmd)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("the tests: %w; see %s", context.Cause(ctx), log.Name()), p.Kill())
	}
	specs, err := read(result)
	if err != nil {
		return nil, fmt.Errorf("the tests ended (%v) without a report: %w; see %s", cmd.ProcessState, err, log.Name())
	}
	return specs, nil
}

// read returns the tests of a report that were not skipped, and other failures.
func read(path string) ([]spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, err
	}
	var ran []spec
	for _, s := range suites {
		for _, one := range s.SpecReports {
			if one.State != "skipped" && one.State != "pending" && (one.LeafNodeType == "It" || one.State != "passed") {
				ran = append(ran, one)
			}
		}
	}
	return ran, nil
}

// report prints a line for each test, and returns how many have not passed.
func report(specs []spec) (failed int) {
	for _, s := range specs {
		name := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
		fmt.Printf("%-7s %6.1f s  %s\n", s.State, s.RunTime.Seconds(), name)
		if s.State != "passed" {
			failed++
			first, _, _ := strings.Cut(s.Failure.Message, "\n")
			fmt.Printf("                  %s\n", first)
		}
	}
	return failed
}
