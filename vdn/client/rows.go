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

// Networks returns all networks.
func (c *Client) Networks(ctx context.Context) ([]vdn.Network, error) {
	return get[[]vdn.Network](ctx, c, path("networks"))
}

// Network returns one network.
func (c *Client) Network(ctx context.Context, name string) (vdn.Network, error) {
	return get[vdn.Network](ctx, c, path("networks", name))
}

// PutNetwork creates or updates a network.
func (c *Client) PutNetwork(ctx context.Context, n vdn.Network) error {
	return c.send(ctx, http.MethodPut, path("networks", n.Name), n)
}

// DeleteNetwork deletes a network. Deleting an absent network is not an error.
func (c *Client) DeleteNetwork(ctx context.Context, name string) error {
	return c.send(ctx, http.MethodDelete, path("networks", name), nil)
}

// Attach leases addresses for a container's interface. It is idempotent.
func (c *Client) Attach(ctx context.Context, r vdn.AttachmentRequest) (lease vdn.Lease, err error) {
	_, err = c.ask(ctx, http.MethodPost, path("attachments"), 0, r, &lease)
	return lease, err
}

// Attachments returns the attachments of a network and node; "" matches all.
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

// Attachment returns one attachment.
func (c *Client) Attachment(ctx context.Context, id string) (vdn.Attachment, error) {
	return get[vdn.Attachment](ctx, c, path("attachments", id))
}

// Detach deletes an attachment. Deleting an absent attachment is not an error.
func (c *Client) Detach(ctx context.Context, id string) error {
	return c.send(ctx, http.MethodDelete, path("attachments", id), nil)
}

// Up reports that an attachment's device exists.
func (c *Client) Up(ctx context.Context, id string, u vdn.UpReport) (a vdn.Attachment, err error) {
	_, err = c.ask(ctx, http.MethodPut, path("attachments", id, "up"), 0, u, &a)
	return a, err
}

// Collect deletes a node's attachments to a network except the valid ones
// ("CONTAINER.INTERFACE"), and returns the deleted ones.
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

// DeleteNode deletes a node that has no attachments.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	return c.send(ctx, http.MethodDelete, path("nodes", name), nil)
}

// Plan returns the plan of a node once its revision differs from after; 0 returns it
// immediately. If nothing changes within wait, fresh is false.
func (c *Client) Plan(ctx context.Context, node string, after uint64, wait time.Duration) (p vdn.Plan, fresh bool, err error) {
	status, err := c.ask(ctx, http.MethodGet, path("nodes", node, "plan")+news(after, wait), wait, nil, &p)
	return p, status == http.StatusOK, err
}

// View returns the view of the domain. Its parameters are those of Plan.
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

// Peers returns all peers.
func (c *Client) Peers(ctx context.Context) ([]vdn.Peer, error) {
	return get[[]vdn.Peer](ctx, c, path("peers"))
}

// PutPeer creates or updates a peer.
func (c *Client) PutPeer(ctx context.Context, p vdn.Peer) error {
	return c.send(ctx, http.MethodPut, path("peers", p.Domain), p)
}

// DeletePeer deletes a peer. Deleting an absent peer is not an error.
func (c *Client) DeletePeer(ctx context.Context, domain string) error {
	return c.send(ctx, http.MethodDelete, path("peers", domain), nil)
}

// Health checks that the controller can persist changes.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.ask(ctx, http.MethodGet, "/healthz", 0, nil, nil)
	return err
}
