package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/vdn"
)

func get[T any](ctx context.Context, c *Client, path string) (out T, err error) {
	_, err = c.ask(ctx, http.MethodGet, path, 0, nil, &out)
	return out, err
}

func (c *Client) send(ctx context.Context, method, path string, in any) error {
	_, err := c.ask(ctx, method, path, 0, in, nil)
	return err
}

func path(parts ...string) string {
	p := "/v1"
	for _, s := range parts {
		p += "/" + url.PathEscape(s)
	}
	return p
}

// Networks gives all.
func (c *Client) Networks(ctx context.Context) ([]vdn.Network, error) {
	return get[[]vdn.Network](ctx, c, path("networks"))
}

// Network gives one.
func (c *Client) Network(ctx context.Context, name string) (vdn.Network, error) {
	return get[vdn.Network](ctx, c, path("networks", name))
}

// PutNetwork makes or changes one.
func (c *Client) PutNetwork(ctx context.Context, n vdn.Network) error {
	return c.send(ctx, http.MethodPut, path("networks", n.Name), n)
}

// DeleteNetwork takes one away; one that is not there is no error.
func (c *Client) DeleteNetwork(ctx context.Context, name string) error {
	return c.send(ctx, http.MethodDelete, path("networks", name), nil)
}

// Attach gives a container's interface its addresses; asked again it gives the same.
func (c *Client) Attach(ctx context.Context, r vdn.AttachmentRequest) (lease vdn.Lease, err error) {
	_, err = c.ask(ctx, http.MethodPost, path("attachments"), 0, r, &lease)
	return lease, err
}

// Attachments gives those of a network and node; of all where "".
func (c *Client) Attachments(ctx context.Context, network, node string) ([]vdn.Attachment, error) {
	q := url.Values{}
	if network != "" {
		q.Set("network", network)
	}
	if node != "" {
		q.Set("node", node)
	}
	p := path("attachments")
	if len(q) > 0 {
		p += "?" + q.Encode()
	}
	return get[[]vdn.Attachment](ctx, c, p)
}

// Attachment gives one.
func (c *Client) Attachment(ctx context.Context, id string) (vdn.Attachment, error) {
	return get[vdn.Attachment](ctx, c, path("attachments", id))
}

// Detach takes one away; one that is not there is no error.
func (c *Client) Detach(ctx context.Context, id string) error {
	return c.send(ctx, http.MethodDelete, path("attachments", id), nil)
}

// Up tells that an attachment's device is there.
func (c *Client) Up(ctx context.Context, id string, u vdn.UpReport) (a vdn.Attachment, err error) {
	_, err = c.ask(ctx, http.MethodPut, path("attachments", id, "up"), 0, u, &a)
	return a, err
}

// Collect takes away a node's attachments to a network but for those that are
// valid ("CONTAINER.INTERFACE"), and gives which.
func (c *Client) Collect(ctx context.Context, node, network string, valid []string) ([]string, error) {
	in := struct {
		Network string   `json:"network"`
		Valid   []string `json:"valid"`
	}{network, append([]string{}, valid...)}
	var out struct {
		Released []string `json:"released"`
	}
	_, err := c.ask(ctx, http.MethodPost, path("nodes", node, "gc"), 0, in, &out)
	return out.Released, err
}

// DeleteNode forgets a node that has no attachments.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	return c.send(ctx, http.MethodDelete, path("nodes", name), nil)
}

// Plan gives what a node must do, once that is of another revision than after; 0
// means at once. After wait without news, fresh is false.
func (c *Client) Plan(ctx context.Context, node string, after uint64, wait time.Duration) (p vdn.Plan, fresh bool, err error) {
	status, err := c.ask(ctx, http.MethodGet, path("nodes", node, "plan")+news(after, wait), wait, nil, &p)
	return p, status == http.StatusOK, err
}

// View gives everything, as Plan does.
func (c *Client) View(ctx context.Context, after uint64, wait time.Duration) (v vdn.View, fresh bool, err error) {
	status, err := c.ask(ctx, http.MethodGet, path("view")+news(after, wait), wait, nil, &v)
	return v, status == http.StatusOK, err
}

func news(after uint64, wait time.Duration) string {
	if after == 0 {
		return ""
	}
	return "?after=" + strconv.FormatUint(after, 10) + "&wait=" + wait.String()
}

// Peers gives all.
func (c *Client) Peers(ctx context.Context) ([]vdn.Peer, error) {
	return get[[]vdn.Peer](ctx, c, path("peers"))
}

// PutPeer makes or changes one.
func (c *Client) PutPeer(ctx context.Context, p vdn.Peer) error {
	return c.send(ctx, http.MethodPut, path("peers", p.Domain), p)
}

// DeletePeer takes one away; one that is not there is no error.
func (c *Client) DeletePeer(ctx context.Context, domain string) error {
	return c.send(ctx, http.MethodDelete, path("peers", domain), nil)
}

// Health says that the controller can keep what it is told.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.ask(ctx, http.MethodGet, "/healthz", 0, nil, nil)
	return err
}
