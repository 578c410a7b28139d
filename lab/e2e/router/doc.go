// Package router contains only end-to-end tests: the router and the reflectors as
// processes that are killed, with traffic over the routes that they installed.
package router
