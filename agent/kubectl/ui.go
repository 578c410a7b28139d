package kubectl

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/fairlead/fairlead/agent/ui"
)

// connectCommand connects its standard input and output to the agent's socket.
const connectCommand = "connect"

// ServeUI serves the page of all nodes until ctx ends. A connection to an agent is a command
// in its pod; the pod is looked up for each, because it may have been replaced.
func ServeUI(ctx context.Context, c Config, o ui.Options, out io.Writer) error {
	config, client, err := connect(c, corev1.AddToScheme, corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	pods, err := agents(ctx, client, c)
	if err != nil {
		return err
	}
	for _, p := range pods {
		one := c
		one.Node = p.Spec.NodeName
		o.Agents = append(o.Agents, ui.NewAgent(one.Node, func(dialing context.Context) (net.Conn, error) {
			pods, err := agents(dialing, client, one)
			if err != nil {
				return nil, err
			}
			return pipe(ctx, func(ctx context.Context, streams remotecommand.StreamOptions) error {
				return execute(ctx, config, client, pods[0], []string{connectCommand}, streams)
			}), nil
		}))
	}
	return o.Run(ctx, out)
}

// pipe returns a connection to the standard input and output of a command, which ends with
// the connection or with ctx.
func pipe(ctx context.Context, run func(context.Context, remotecommand.StreamOptions) error) net.Conn {
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	c := &commandConn{Conn: ours, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer cancel()
		var said bytes.Buffer
		c.err = run(ctx, remotecommand.StreamOptions{Stdin: theirs, Stdout: theirs, Stderr: &said})
		if text := strings.TrimSpace(said.String()); text != "" {
			c.err = errors.New(text)
		}
		close(c.ended)
		theirs.Close()
	}()
	return c
}

type commandConn struct {
	net.Conn
	cancel context.CancelFunc
	ended  chan struct{}
	// err is why the command ended.
	err error
}

// Read returns the error of the command at its end.
func (c *commandConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		if <-c.ended; c.err != nil {
			err = c.err
		}
	}
	return n, err
}

// Close ends the command.
func (c *commandConn) Close() error {
	c.cancel()
	return c.Conn.Close()
}
