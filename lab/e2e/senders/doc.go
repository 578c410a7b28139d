// Package senders contains only end-to-end tests of packets between load balancers and
// backend nodes, which check their senders, by address and by a key.
package senders
