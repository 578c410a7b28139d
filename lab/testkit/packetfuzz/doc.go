// Package packetfuzz fuzzes the BPF programs with packets: the real programs, run by the
// kernel (BPF_PROG_TEST_RUN), against models of what they must do.
//
// Each package in this folder that is listed in targets has one set of programs: the real
// agent writes their maps, a model predicts for every packet the verdict and the bytes
// that come out, and a generator creates packets that could come next. A case is a
// sequence of packets, waits and configuration changes; it starts with empty tables in
// one of the target's worlds, which are random configurations. After each case, the state
// of program and model is compared: flows, fragments, limits, counters. A difference is a
// violation: the engine reduces its case and prints it.
//
// Programs are instrumented when they are loaded (Instrument): a byte for each basic
// block records whether it has run, and clocks and random numbers come from a Control.
// Cases that reach a new block, or a new state of the model (Features), are kept and
// mutated. docs/decisions/0035-packet-fuzzing.md explains the design.
//
// # Use
//
//	go test ./lab/testkit/packetfuzz/...       fixed seeds and the corpus
//	make fuzz FUZZTIME=1m ARGS="-run TestFuzz"      for a time, from another seed
//	make fuzz-packets ARGS="-time 8h -resume"       for as long as you like
//	make fuzz-seeded                                how long bugs take to be found
//
// A violation is stored in testdata/cases, where TestPackets runs it from then on. The
// case depends on the world, and the world on the code that creates worlds: also write an
// ordinary test of the packet next to the fix.
//
// # Change
//
// A program that changes what it does to packets violates its model. Decide which of the
// two is right. A model states what must hold independently and never calls the product's
// code that it checks. Checksums need no model: Expected compares the sums of what they
// cover. Values that the agent chooses (IDs, tables, rows) are read from its maps by the
// names of C's fields (LayoutOf), so that most changes of a struct need no change of a
// model.
//
//   - A new drop reason, counter or enum value: use its name in the model. All counters
//     are compared.
//   - A new constant that the agent sets at load: nothing; it is copied (Load). A random
//     secret: set it in the target's load, so that cases are reproducible.
//   - A new map that packets change: add it to the target's private maps, compare it in
//     Finish and clear it in Reset. One that the agent writes: nothing.
//   - A new helper for time, randomness or redirection: rewriter.one in instrument.go.
//   - A new kind of packet: the target's generator, and wire for building and parsing it.
//
// What does not belong here: tests of single packets, which are next to the programs'
// agents, and anything that the product uses.
package packetfuzz
