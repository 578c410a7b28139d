// Package monitoring tests what operators monitor with: that every alert of the chart fires
// with its fault and not without it, that alerts and dashboard use only metrics that exist,
// and that real agents export what the alerts expect.
package monitoring
