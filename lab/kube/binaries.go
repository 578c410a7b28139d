package kube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/internal/checkout"
	"github.com/fairlead/fairlead/lab/testkit"
)

// BinariesEnv is the environment variable with the folder of Kubernetes' programs. If it
// is not set, scripts/kube.sh builds them.
const BinariesEnv = "FAIRLEAD_KUBE_BIN"

// Main is testkit.Main for a package whose tests need the programs: it builds missing
// ones first. Without them the tests fail. more lists programs in addition to the control
// plane's.
func Main(m *testing.M, more ...string) {
	if err := Prepare(append(more, "etcd", "kube-apiserver")...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testkit.Main(m)
}

// Prepare builds missing programs by these names while the network is still available,
// and makes sure that processes in a sandbox find them.
func Prepare(names ...string) error {
	folder, err := Binaries(names...)
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		return err
	}
	return os.Setenv(BinariesEnv, folder)
}

// Binaries returns the folder with programs by these names. It builds them if necessary.
func Binaries(names ...string) (string, error) {
	folder := os.Getenv(BinariesEnv)
	if folder == "" {
		return build(names)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return "", fmt.Errorf("%w: %s must name a folder with %s; without it they are built", err, BinariesEnv, names)
		}
	}
	return folder, nil
}

func build(names []string) (string, error) {
	repository, err := checkout.Root()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(repository, "scripts/kube.sh"), names...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // it may take minutes: show progress
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("scripts/kube.sh %s: %w", names, err)
	}
	return filepath.Join(repository, "out/kube/bin"), nil
}
