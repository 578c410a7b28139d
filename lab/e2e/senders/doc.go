// Package senders holds nothing but tests of the whole: packets between load balancers and
// backend nodes, which check who sends them, by address and by a key.
package senders
