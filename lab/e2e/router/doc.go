// Package router holds nothing but tests of the whole: the router and the
// reflectors as processes that die, with traffic by what they installed.
package router
