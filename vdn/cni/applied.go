package cni

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fairlead/fairlead/vdn/node"
)

// applied waits until the node enforces the network's rules at an attachment's device. A
// node without the daemon enforces nothing, so there is nothing to wait for.
func (c *call) applied(ctx context.Context) error {
	if _, err := os.Stat(node.Socket); err != nil {
		return nil
	}
	client := node.Client(node.Socket)
	defer client.CloseIdleConnections()
	for {
		done, err := ask(ctx, client, "http://node/applied?wait=1s&attachment="+url.QueryEscape(c.id()))
		switch {
		case errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return fail(types.ErrTryAgainLater, "network %s: the node's daemon has not applied the plan with attachment %s within %v: see fairlead vdn get nodes for its error", c.Network, c.id(), c.Timeout)
		case err != nil:
			return fail(types.ErrTryAgainLater, "%v", c.deaf(err))
		case done:
			return nil
		}
	}
}

// nodeName returns the node name that the daemon uses with the controller, or the hostname
// if no daemon answers. A configuration for all nodes names none of them.
func nodeName() string {
	host, _ := os.Hostname() // callers that need the name check that it is not empty
	if _, err := os.Stat(node.Socket); err != nil {
		return host
	}
	client := node.Client(node.Socket)
	client.Timeout = time.Second
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://node/node")
	if err != nil {
		return host
	}
	defer answer.Body.Close()
	var is struct{ Name string }
	if answer.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(answer.Body, 4096)).Decode(&is) != nil {
		return host
	}
	return cmp.Or(is.Name, host)
}

// daemonAnswers checks that a daemon listens, if there is a socket.
func (c *call) daemonAnswers() error {
	answers, err := net.Dial("unix", node.Socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return c.deaf(err)
	}
	return answers.Close()
}

func (c *call) deaf(err error) error {
	return fmt.Errorf("network %s: the node's daemon at %s: %w: start it (fairlead vdn agent), or remove its socket if it was uninstalled", c.Network, node.Socket, err)
}

// ask reports whether the plan is applied: 200 means yes, 304 not yet.
func ask(ctx context.Context, client *http.Client, address string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusNotModified:
		return false, nil
	}
	var no struct{ Error string }
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096)) // a partial body is good enough
	if json.Unmarshal(text, &no) != nil || no.Error == "" {
		no.Error = string(text)
	}
	return false, fmt.Errorf("%s: %s", answer.Status, no.Error)
}
