package nodes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/sandbox"
)

// Agnhost is the image of pods that serve and ask, which nodes have.
func (c *Cluster) Agnhost() (string, error) {
	program := filepath.Join(c.Binaries, "agnhost")
	said, err := exec.Command(program, "--version").Output() // "agnhost version 2.63.0"
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", program, err)
	}
	fields := strings.Fields(string(said))
	return "registry.k8s.io/e2e-test-images/agnhost:" + fields[len(fields)-1], nil
}

// Kubectl runs it where the API server is reached, and gives what it says.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.Tool(ctx, filepath.Join(c.Binaries, "kubectl"), args...)
}

// Tool runs a program of users' where the API server is reached, and gives what it
// says. It finds those in the folders named.
func (c *Cluster) Tool(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "HOME="+sandbox.WorkDir,
		"PATH="+strings.Join(append(c.opts.Path, c.Binaries, os.Getenv("PATH")), ":"))
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	p, err := c.Control.Start(cmd)
	if err != nil {
		return "", err
	}
	if err := p.Wait(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, &b)
	}
	return b.String(), nil
}

// Await asks f again and again until it answers nil, for as long as limit or the
// context allows; its last error is told with what.
func Await(ctx context.Context, what string, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := await(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
