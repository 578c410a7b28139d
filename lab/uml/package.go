package uml

import (
	_ "embed" // the shim's source
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/checkout"
)

// Where scripts/deps.sh unpacks Debian's package user-mode-linux, relative to the
// repository, and its contents.
const (
	packageFolder = "out/uml"
	kernelPath    = "usr/bin/linux.uml"
	modulesPath   = "usr/lib/uml/modules"
)

// fetched returns the folder of the unpacked package, and fetches the package if
// necessary.
func fetched() (string, error) {
	repository, err := checkout.Root()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(repository, packageFolder)
	if _, err := os.Stat(filepath.Join(folder, kernelPath)); !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	fetch := exec.Command(filepath.Join(repository, "scripts/deps.sh"), "guest")
	if said, err := fetch.CombinedOutput(); err != nil {
		return "", fmt.Errorf("no kernel for the guest, and scripts/deps.sh guest fails: %w: %s", err, said)
	}
	_, err = os.Stat(filepath.Join(folder, kernelPath))
	return folder, err
}

// modulesFolder is the folder of the package's kernel: its name is the kernel's release.
func modulesFolder(root string) (string, error) {
	found, err := filepath.Glob(filepath.Join(root, modulesPath, "*", "modules.dep"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%s has modules of %d kernels, want one: remove %s and fetch it again", root, len(found), packageFolder)
	}
	if err != nil {
		return "", err
	}
	return filepath.Dir(found[0]), nil
}

// wanted are the modules that every guest has, in addition to their dependencies.
// A module that a kernel has built in, or does not have, is not an error: the code that
// needs it will report that.
var wanted = strings.Fields(`
	ip_vs ip_vs_rr ip_vs_wrr ip_vs_lc ip_vs_wlc ip_vs_sh ip_vs_dh ip_vs_mh
	ip_vs_lblc ip_vs_lblcr ip_vs_sed ip_vs_nq ip_vs_fo ip_vs_ovf
	veth dummy macvlan bridge ipip sit ip6_tunnel fou fou6
	iptable_filter iptable_nat iptable_mangle iptable_raw
	ip6table_filter ip6table_nat ip6table_mangle ip6table_raw
	ipt_REJECT ip6t_REJECT nf_nat
	xt_ipvs xt_mark xt_connmark xt_conntrack xt_comment xt_multiport xt_tcpudp xt_sctp
	xt_nat xt_MASQUERADE xt_addrtype xt_limit xt_hashlimit xt_connlimit xt_statistic xt_iprange xt_set
	ip_set_hash_net ip_set_hash_ip ip_set_hash_ipport ip_set_bitmap_port
	sch_ingress cls_bpf act_bpf`)

// inOrder returns the files of modules, each after its dependencies; dep is the text of
// modules.dep: "a.ko: b.ko c.ko", where a needs b and b needs c.
func inOrder(dep string, names []string) (files []string) {
	needs, paths := map[string][]string{}, map[string]string{}
	for line := range strings.Lines(dep) {
		file, others, _ := strings.Cut(strings.TrimSpace(line), ":")
		needs[file] = strings.Fields(others)
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		paths[name] = file
	}
	for _, name := range names {
		file, ok := paths[name]
		if !ok {
			continue
		}
		chain := append([]string{file}, needs[file]...)
		slices.Reverse(chain)
		for _, f := range chain {
			if !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	return files
}

//go:embed shim/ptrace.c
var shimSource string

// buildShim compiles the library that the kernel's process preloads.
func buildShim(to string) error {
	cc := exec.Command("cc", "-x", "c", "-shared", "-fPIC", "-O2", "-o", to, "-", "-ldl")
	cc.Stdin = strings.NewReader(shimSource)
	if said, err := cc.CombinedOutput(); err != nil {
		return fmt.Errorf("compile lab/uml/shim (scripts/deps.sh guest installs a compiler): %w: %s", err, said)
	}
	return nil
}
