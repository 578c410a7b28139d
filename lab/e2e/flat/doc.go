// Package flat holds nothing but tests of the whole in networks without a router
// that speaks BGP: layer 2, a cloud's webhook, and what was imported from LVS.
package flat
