// Package diff contains only an end-to-end test of fairlead diff: the connections that it
// predicts to break are those that break.
package diff
