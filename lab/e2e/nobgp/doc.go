// Package nobgp contains only end-to-end tests in networks without a BGP router: layer 2,
// a cloud's webhook, and configurations imported from LVS.
package nobgp
