package nodes

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Agnhost returns the image of client and server pods, which nodes have.
func (c *Cluster) Agnhost() (string, error) {
	program := filepath.Join(c.Binaries, "agnhost")
	said, err := exec.Command(program, "--version").Output() // "agnhost version 2.63.0"
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", program, err)
	}
	fields := strings.Fields(string(said))
	return "registry.k8s.io/e2e-test-images/agnhost:" + fields[len(fields)-1], nil
}

// Kubectl runs kubectl where it can reach the API server, and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.Tool(ctx, filepath.Join(c.Binaries, "kubectl"), args...)
}

// Tool runs a user's program where it can reach the API server, and returns its output.
// The program finds others in the folders of Options.Path.
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

// Get requests a URL from a host, with a new connection. An empty token is not sent;
// config is for https.
func Get(ctx context.Context, from *lab.Host, url, token string, config *tls.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: config,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return from.Dial(ctx, netip.Addr{}, netip.MustParseAddrPort(address))
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

// Say prints a step of the job, with the elapsed time.
func (c *Cluster) Say(format string, args ...any) {
	fmt.Printf("%6.1f s  %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// State returns kubectl's output about a cluster after a failure: all objects of the
// kinds, Fairlead's pods, and additional commands.
func (c *Cluster) State(kinds string, more ...[]string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all strings.Builder
	for _, args := range slices.Concat([][]string{
		{"get", kinds, "--all-namespaces", "--output", "wide"},
		{"get", "events", "--all-namespaces"},
		{"--namespace", "fairlead", "describe", "pods"},
		{"--namespace", "fairlead", "logs", "--selector", "app.kubernetes.io/name=fairlead", "--all-containers", "--prefix", "--tail=200"},
	}, more) {
		said, err := c.Kubectl(ctx, args...)
		fmt.Fprintf(&all, "# kubectl %s\n%s\n", strings.Join(args, " "), said)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}

// Await calls f repeatedly until it returns nil, for as long as limit or the context
// allows; then it returns the last error of f together with what.
func Await(ctx context.Context, what string, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := await(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
