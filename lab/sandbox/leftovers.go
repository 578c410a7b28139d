package sandbox

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/lab/netns"
)

// Leftovers lists what a program inside a sandbox with Net has created and not removed:
// processes, network namespaces, links, pins of BPF objects and mounts. The kernel
// removes them with the sandbox; a program that intends to clean up after itself should
// find none.
func Leftovers() []string {
	var left []string
	left = append(left, processes()...)
	left = append(left, namespaces()...)
	left = append(left, links()...)
	left = append(left, pins()...)
	return append(left, mounts()...)
}

// processes are all except init and this one.
func processes() []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		command, err := os.ReadFile(dir + "/cmdline")
		if err != nil || len(command) == 0 { // ended in the meantime, or a zombie that init is about to reap
			continue
		}
		left = append(left, fmt.Sprintf("process %d %s", pid, bytes.TrimSpace(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))))
	}
	return left
}

// namespaces are the named ones, and those that this process still has open or has a
// thread in.
func namespaces() []string {
	var left []string
	named, _ := os.ReadDir(netns.Dir)
	for _, e := range named {
		left = append(left, "namespace "+e.Name())
	}
	home, _ := os.Readlink("/proc/self/ns/net")
	held := map[string]string{}
	for _, pattern := range []string{"/proc/self/fd/*", "/proc/self/task/*/ns/net"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if ns, err := os.Readlink(path); err == nil && strings.HasPrefix(ns, "net:") && ns != home {
				held[ns] = path
			}
		}
	}
	for ns, path := range held {
		left = append(left, fmt.Sprintf("namespace %s held by %s", ns, path))
	}
	slices.Sort(left)
	return left
}

func links() []string {
	var left []string
	all, _ := net.Interfaces()
	for _, l := range all {
		if l.Name != "lo" {
			left = append(left, "link "+l.Name)
		}
	}
	return left
}

// pins omits what the kernel itself puts into every bpffs.
func pins() []string {
	var left []string
	all, _ := os.ReadDir("/sys/fs/bpf")
	for _, e := range all {
		if e.Name() != "maps.debug" && e.Name() != "progs.debug" {
			left = append(left, "pin /sys/fs/bpf/"+e.Name())
		}
	}
	return left
}

// mounts are those below the sandbox's own folders.
func mounts() []string {
	var left []string
	table, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && (strings.HasPrefix(fields[1], "/run/") || strings.HasPrefix(fields[1], "/sys/fs/bpf/")) {
			left = append(left, "mount "+fields[1])
		}
	}
	return left
}
