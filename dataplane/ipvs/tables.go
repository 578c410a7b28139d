package ipvs

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane/internal/sysctl"
	"github.com/fairlead/fairlead/service"
)

// table is one of Fairlead's chains in one family's table of iptables.
type table struct {
	v6          bool
	name, chain string
	hooks       []string // the chains that lead to it
	line        func(rule) string

	known   bool // what follows is as it is in the kernel
	there   bool
	missing []string // those of hooks that do not lead there
	rules   []rule
}

// tables are those that ranges of ports and fullnat need, by family.
type tables struct {
	marks, nat [2]table
}

// The hooks are before IPVS looks at a packet, and after it has sent it.
var (
	markHooks = []string{"PREROUTING", "OUTPUT"}
	natHooks  = []string{"POSTROUTING"}
)

// serves says that the chain is as it is to be, as far as that is known: the
// kernel is asked before anything is written.
func (t *table) serves(rules []rule) bool {
	return slices.Equal(t.rules, rules) && (len(rules) == 0 || len(t.missing) == 0)
}

// familyIndex is where a family's are.
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
		t.nat[i] = table{v6: v6, name: "nat", chain: natChain, hooks: natHooks, missing: natHooks, line: natLine}
	}
	return t
}

// readTables reads those that the records need.
func (d *DataPlane) readTables(records []*record) error {
	d.tables = newTables()
	for _, r := range records {
		i := familyIndex(r.v6)
		if r.mark != 0 {
			if err := d.readTable(&d.tables.marks[i]); err != nil {
				return err
			}
		}
		if r.flags&flagFullNAT != 0 {
			if err := d.readTable(&d.tables.nat[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyOf gives the key of a service of the kernel's; the zero Key for a mark that
// no packet gets.
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

// tablesServe says that the rules are as a frontend needs them.
func (d *DataPlane) tablesServe(k service.Key, r *record) bool {
	i := familyIndex(r.v6)
	return (!k.Range() || d.tables.marks[i].serves(d.markRules(r.v6))) &&
		(!r.masquerades() || d.tables.nat[i].serves(d.natRules(r.v6)))
}

// writeMarks brings the chains that mark packets to what is held.
func (d *DataPlane) writeMarks() error {
	for i := range d.tables.marks {
		t := &d.tables.marks[i]
		if err := d.writeTable(t, d.markRules(t.v6)); err != nil {
			return err
		}
	}
	return nil
}

// writeNAT brings the chains that masquerade to what is held.
func (d *DataPlane) writeNAT() error {
	if d.fullNATs != [2]int{} && !d.tables.nat[0].there && !d.tables.nat[1].there {
		if err := d.inside(func() error { return sysctl.SetAll(tracking) }); err != nil {
			return fmt.Errorf("ipvs: %w", err)
		}
	}
	for i := range d.tables.nat {
		t := &d.tables.nat[i]
		if err := d.writeTable(t, d.natRules(t.v6)); err != nil {
			return err
		}
	}
	return nil
}

// removeTables takes all chains out.
func (d *DataPlane) removeTables() error {
	var errs []error
	for _, all := range []*[2]table{&d.tables.marks, &d.tables.nat} {
		for i := range all {
			if all[i].there {
				errs = append(errs, d.writeTable(&all[i], nil))
			}
		}
	}
	return errors.Join(errs...)
}

// writeTable writes a chain whole, in one step, where it is to be another.
func (d *DataPlane) writeTable(t *table, rules []rule) error {
	if t.serves(rules) {
		return nil
	}
	if err := d.readTable(t); err != nil || t.serves(rules) {
		return err
	}
	if err := d.restore(t.v6, t.script(rules)); err != nil {
		t.known = false
		return err
	}
	t.there, t.rules, t.missing = len(rules) > 0, rules, nil
	if !t.there {
		t.missing = t.hooks
	}
	return nil
}

// script gives what iptables-restore is told to make the chain another, or to
// remove it.
func (t *table) script(rules []rule) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "*%s\n:%s - [0:0]\n", t.name, t.chain) // makes it, or makes it empty
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
	if len(rules) == 0 {
		fmt.Fprintf(b, "-X %s\n", t.chain)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// readTable reads a chain, where that has not been done.
func (d *DataPlane) readTable(t *table) error {
	if t.known {
		return nil
	}
	text, err := d.save(t)
	if err != nil {
		return err
	}
	t.known, t.there, t.rules, t.missing = true, text != "", nil, slices.Clone(t.hooks)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if r, ok := readRule(t.chain, line); ok {
			t.rules = append(t.rules, r)
		}
		t.missing = slices.DeleteFunc(t.missing, func(hook string) bool { return line == "-A "+hook+" -j "+t.chain })
	}
	return nil
}

// iptablesTools are the two that there are: over nf_tables on most systems, and
// over the older x_tables, which some kernels have alone.
var iptablesTools = []string{"tables", "tables-legacy"}

// tools are those that may have to be tried: the one that works, once that is
// known.
func (d *DataPlane) tools() []string {
	if d.tool != "" {
		return []string{d.tool}
	}
	return iptablesTools
}

// save reads a table by the tool that has the chain; nothing where none has.
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

// restore writes a table by the first tool with which the kernel does it.
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
	return fmt.Errorf("ipvs: ranges of ports and method fullnat need iptables: %w", errors.Join(errs...))
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
