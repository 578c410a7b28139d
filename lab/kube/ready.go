package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
)

// Dial opens a connection from the cluster's host.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.opts.Host == nil {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return c.opts.Host.DialTCP(ctx, netip.Addr{}, to)
}

// serves returns nil if the server answers and has created the objects that every cluster
// has.
func serves(ctx context.Context, client *http.Client, url string) error {
	for _, path := range []string{"/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default/services/kubernetes"} {
		if err := get(ctx, client, url+path); err != nil {
			return err
		}
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}

// Page returns a check for Program.Ready: whether dial reaches a server of this page,
// with any certificate.
func Page(dial func(ctx context.Context, network, address string) (net.Conn, error), url string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext:     dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	return func(ctx context.Context) error { return get(ctx, client, url) }
}
