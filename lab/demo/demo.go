// Package demo runs the whole system on one machine, with real traffic: the
// drawing of lab.Paper, real agents, reflector and router in it, and changes
// made under load, each measured. It is what fairlead demo does; the lab
// itself, and the load, live in lab and lab/load.
package demo
