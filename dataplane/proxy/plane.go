// Package proxy is the service proxy's data plane: it makes the kernel hold the
// frontends that proxy.Build decides on, and serves the sockets of this node.
package proxy
