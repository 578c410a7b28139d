package ipvs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/sysctl"
)

// table is one of Fairlead's chains in one family's iptables table.
type table struct {
	v6          bool
	name, chain string
	hooks       []string // the chains that jump to it
	line        func(rule) string

	known   bool // what follows matches the kernel
	there   bool
	missing []string // those of hooks without the jump
	rules   []rule
	behind  int // number of chains that only this one refers to
}

// tables are those for port ranges, fullnat, allow and deny, by family.
type tables struct {
	marks, nat, guards [2]table
}

// The hooks are before IPVS sees a packet, and after it has sent it.
var (
	markHooks = []string{"PREROUTING", "OUTPUT"}
	natHooks  = []string{"POSTROUTING"}
)

// serves reports whether the chain is as desired, as far as known: the kernel is read
// before every write.
func (t *table) serves(rules []rule) bool {
	return slices.Equal(t.rules, rules) && (len(rules) == 0 || len(t.missing) == 0)
}

// familyIndex is the index of a family.
func familyIndex(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

func newTables() (t tables) {
	for _, v6 := range []bool{false, true} {
		i := familyIndex(v6)
		t.marks[i] = table{v6: v6, name: "mangle", chain: markChain, hooks: markHooks, missing: markHooks, line: markLine}
		t.guards[i] = table{v6: v6, name: "mangle", chain: guardChain, hooks: markHooks, missing: markHooks, line: guardLine}
		t.nat[i] = table{v6: v6, name: "nat", chain: natChain, hooks: natHooks, missing: natHooks, line: natLine}
	}
	return t
}

// readTables reads those that the records need.
func (d *DataPlane) readTables(records []*record) error {
	d.tables = newTables()
	for _, r := range records {
		i := familyIndex(r.v6)
		for t, needed := range map[*table]bool{
			&d.tables.marks[i]: r.mark != 0, &d.tables.nat[i]: r.flags&flagFullNAT != 0, &d.tables.guards[i]: r.flags&flagGuarded != 0,
		} {
			if needed {
				if err := d.readTable(t); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// keyOf returns the key of a kernel service, or the zero Key for a mark that no packet
// gets.
func (t *tables) keyOf(id serviceID) service.Key {
	if id.mark == 0 {
		return keyOf(id)
	}
	for _, m := range t.marks {
		for _, r := range m.rules {
			if r.mark == id.mark && m.v6 == id.v6 {
				return r.id
			}
		}
	}
	return service.Key{}
}

// serving reports for each table whether its rules are as desired, by family.
type serving struct{ marks, nat, guards [2]bool }

func (d *DataPlane) serving() (s serving) {
	for _, v6 := range []bool{false, true} {
		i := familyIndex(v6)
		s.marks[i] = d.tables.marks[i].serves(d.markRules(v6))
		s.nat[i] = d.tables.nat[i].serves(d.natRules(v6))
		s.guards[i] = d.tables.guards[i].serves(d.guardRules(v6))
	}
	return s
}

// of reports whether the rules are as a frontend needs them.
func (s serving) of(k service.Key, r *record) bool {
	i := familyIndex(r.v6)
	return (!k.Range() || s.marks[i]) && (!r.masquerades() || s.nat[i]) && (r.flags&flagGuarded == 0 || s.guards[i])
}

// writeMarks updates the chains that mark packets.
func (d *DataPlane) writeMarks() error {
	return d.writeEach(func(i int, v6 bool) []desiredTable { return []desiredTable{{&d.tables.marks[i], d.markRules(v6)}} })
}

// writeGuards updates the chains that drop packets.
func (d *DataPlane) writeGuards() error {
	return d.writeEach(func(i int, v6 bool) []desiredTable { return []desiredTable{{&d.tables.guards[i], d.guardRules(v6)}} })
}

// writeMangle does both in one step, so that a packet that moves to another frontend
// meets the rules of only one of them.
func (d *DataPlane) writeMangle() error {
	return d.writeEach(func(i int, v6 bool) []desiredTable {
		return []desiredTable{{&d.tables.marks[i], d.markRules(v6)}, {&d.tables.guards[i], d.guardRules(v6)}}
	})
}

// writeEach writes the desired tables of each family.
func (d *DataPlane) writeEach(tables func(i int, v6 bool) []desiredTable) error {
	for _, v6 := range []bool{false, true} {
		if err := d.writeTables(tables(familyIndex(v6), v6)...); err != nil {
			return err
		}
	}
	return nil
}

// writeNAT updates the chains that masquerade.
func (d *DataPlane) writeNAT() error {
	if d.fullNATs != [2]int{} && !d.tables.nat[0].there && !d.tables.nat[1].there {
		if err := d.inside(func() error { return sysctl.SetAll(tracking) }); err != nil {
			return fmt.Errorf("ipvs: %w", err)
		}
	}
	return d.writeEach(func(i int, v6 bool) []desiredTable { return []desiredTable{{&d.tables.nat[i], d.natRules(v6)}} })
}

// removeTables removes all chains.
func (d *DataPlane) removeTables() error {
	var errs []error
	for _, all := range []*[2]table{&d.tables.marks, &d.tables.guards, &d.tables.nat} {
		for i := range all {
			if all[i].there {
				errs = append(errs, d.writeTables(desiredTable{&all[i], nil}))
			}
		}
	}
	return errors.Join(errs...)
}

// desiredTable is the desired state of a table.
type desiredTable struct {
	*table
	rules []rule
}

// writeTables writes the chains of one table that differ, completely and in one step.
func (d *DataPlane) writeTables(all ...desiredTable) error {
	var script strings.Builder
	var changed []desiredTable
	for _, w := range all {
		if w.serves(w.rules) {
			continue
		}
		if err := d.readTable(w.table); err != nil {
			return err
		}
		if !w.serves(w.rules) {
			changed = append(changed, w)
			script.WriteString(w.script(w.rules))
		}
	}
	if len(changed) == 0 {
		return nil
	}
	err := d.restore(changed[0].v6, "*"+changed[0].name+"\n"+script.String()+"COMMIT\n")
	for _, w := range changed {
		w.written(w.rules, err)
	}
	return err
}

// written records what the kernel has, as far as known.
func (t *table) written(rules []rule, err error) {
	if err != nil {
		t.known = false
		return
	}
	t.there, t.rules, t.missing, t.behind = len(rules) > 0, rules, nil, behind(rules)
	if !t.there {
		t.missing = t.hooks
	}
}

// behind counts the chains that rules are in, without the first.
func behind(rules []rule) (n int) {
	for _, r := range rules {
		n = max(n, r.chain)
	}
	return n
}

// script returns the input for iptables-restore that replaces or removes the chain.
func (t *table) script(rules []rule) string {
	b, chains := &strings.Builder{}, behind(rules)
	for n := range 1 + max(t.behind, chains) {
		fmt.Fprintf(b, ":%s - [0:0]\n", chainName(t.chain, n)) // creates or flushes it
	}
	for _, r := range rules {
		fmt.Fprintln(b, t.line(r))
	}
	for _, hook := range t.hooks {
		switch lacks := slices.Contains(t.missing, hook); {
		case len(rules) == 0 && !lacks:
			fmt.Fprintf(b, "-D %s -j %s\n", hook, t.chain)
		case len(rules) > 0 && lacks:
			fmt.Fprintf(b, "-I %s -j %s\n", hook, t.chain)
		}
	}
	for n := chains + 1; n <= t.behind; n++ {
		fmt.Fprintf(b, "-X %s\n", chainName(t.chain, n))
	}
	if len(rules) == 0 {
		fmt.Fprintf(b, "-X %s\n", t.chain)
	}
	return b.String()
}

// readTable reads a chain, unless it is known.
func (d *DataPlane) readTable(t *table) error {
	if t.known {
		return nil
	}
	text, err := d.save(t)
	if err != nil {
		return err
	}
	t.known, t.there, t.rules, t.missing, t.behind = true, text != "", nil, slices.Clone(t.hooks), 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if r, ok := readRule(t.chain, line); ok {
			t.rules = append(t.rules, r)
		}
		if declared, ok := strings.CutPrefix(line, ":"); ok {
			name, _, _ := strings.Cut(declared, " ")
			n, _ := chainNumber(t.chain, name)
			t.behind = max(t.behind, n)
		}
		t.missing = slices.DeleteFunc(t.missing, func(hook string) bool { return line == "-A "+hook+" -j "+t.chain })
	}
	slices.SortStableFunc(t.rules, func(a, b rule) int { return cmp.Compare(a.chain, b.chain) })
	return nil
}

// iptablesTools are the two variants: with nf_tables on most systems, and with the older
// x_tables, the only one on some kernels.
var iptablesTools = []string{"tables", "tables-legacy"}

// tools are those to try: only the working one, once it is known.
func (d *DataPlane) tools() []string {
	if d.tool != "" {
		return []string{d.tool}
	}
	return iptablesTools
}

// save reads a table with the tool that has the chain; nothing if none has.
func (d *DataPlane) save(t *table) (string, error) {
	var errs []error
	for _, tool := range d.tools() {
		text, err := d.iptables(t.v6, tool+"-save", "", "-t", t.name)
		if err == nil && strings.Contains(text, "\n:"+t.chain+" ") {
			d.tool = tool
			return text, nil
		}
		errs = append(errs, err)
	}
	if slices.Contains(errs, nil) {
		return "", nil
	}
	return "", errors.Join(errs...)
}

// restore writes a table with the first tool that succeeds.
func (d *DataPlane) restore(v6 bool, input string) error {
	var errs []error
	for _, tool := range d.tools() {
		_, err := d.iptables(v6, tool+"-restore", input, "--noflush", "--wait=10")
		if err == nil {
			d.tool = tool
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("ipvs: port ranges, forwarding mode fullnat, allow and deny need iptables: %w", errors.Join(errs...))
}

// iptables runs one of its programs inside the namespace.
func (d *DataPlane) iptables(v6 bool, program, input string, args ...string) (string, error) {
	name := "ip" + program
	if v6 {
		name = "ip6" + program
	}
	var stdout, stderr bytes.Buffer
	err := d.inside(func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
		return cmd.Run()
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
