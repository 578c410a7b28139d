// Package upgrade contains only end-to-end tests: every component is upgraded and
// downgraded while traffic flows. previousVariable names the previous version; make
// test-upgrade builds one.
package upgrade
