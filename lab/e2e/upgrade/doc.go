// Package upgrade holds nothing but tests of the whole: every component goes from
// one version to another and back while traffic flows. Which version came before
// is named by PreviousVariable; make test-upgrade builds one.
package upgrade
