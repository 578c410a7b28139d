// Package packetfuzz fuzzes the BPF programs with packets: the real programs, run by
// the kernel (BPF_PROG_TEST_RUN), against models of what they must do.
//
// Each package below it that is named in targets has one set of programs: the real agent
// writes their maps, a model says for every packet which verdict and which bytes must
// come out, and a generator makes packets that could come next. A case is a sequence of
// packets, of times that pass and of changes of the configuration; it begins with empty
// tables in one of the target's worlds, which are configurations at random. After each
// case, what program and model remember is compared: flows, fragments, limits, counters.
// What differs is a violation: the engine makes its case short and shows it.
//
// Programs are instrumented where they are loaded (Instrument): a byte for each basic
// block says what has run, and clocks and random numbers come from a Control. Cases that
// reach a new block, or a state of the model that is new (Features), are kept and changed
// further. docs/decisions/0035-packet-fuzzing.md says why it is done so.
//
// # Use
//
//	go test ./lab/testkit/packetfuzz/...       fixed seeds and the corpus
//	make fuzz FUZZTIME=1m ARGS="-run TestFuzz"      for a time, from another seed
//	make fuzz-packets ARGS="-time 8h -resume"       for as long as you like
//	make fuzz-seeded                                how long bugs take to be found
//
// A violation is kept in testdata/cases, where TestPackets runs it from then on. The case
// depends on the world, and that on the code that makes worlds: write an ordinary test of
// the packet next to the fix, too.
//
// # Change
//
// A program that changes what it does to packets violates its model. Decide which of the
// two is right; a model says what must hold in words of its own and never calls the
// product's code that it checks. Checksums need no model: Expected compares the sums of
// what they cover. Values that the agent chooses (ids, rings, rows) are read from its maps
// by the names of C's fields (LayoutOf), so that most changes of a struct need no change
// of a model.
//
//   - A new drop reason, counter or enum value: use its name in the model. Counters are
//     all compared.
//   - A new constant that the agent sets at load: nothing; it is taken over (Load). A secret
//     that it makes by chance: set it in the target's load, so that cases stay the same.
//   - A new map that packets change: name it among the target's private maps, compare it
//     in Finish and clear it in Reset. One that the agent writes: nothing.
//   - A new helper for time, chance or redirection: rewriter.one in instrument.go.
//   - A new kind of packet: the target's generator, and wire for how it is built and read.
//
// What does not belong here: tests of single packets, which stand next to the programs'
// agents, and anything that the product uses.
package packetfuzz
