// Package e2e holds nothing but tests: the stories of a running Fairlead, told
// with the real binary, real BGP, real kernel routes and real traffic in the
// network of the papers (lab/cluster). What one package can show alone is
// tested there.
package e2e
