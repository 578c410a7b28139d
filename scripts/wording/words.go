package main

import (
	"regexp"
	"strings"
)

// rule is a retired word or phrase, and what to say instead.
type rule struct {
	re      *regexp.Regexp
	say     string
	idents  bool           // identifiers are searched, too, split into words
	except  *regexp.Regexp // around the match: a correct use
	outside *regexp.Regexp // paths where the word is right
}

// option changes a rule.
type option func(*rule)

// inIdents has identifiers searched, too.
func inIdents(r *rule) { r.idents = true }

// except lists correct uses, as regular expressions around a match.
func except(uses ...string) option {
	return func(r *rule) { r.except = regexp.MustCompile("(?i)" + strings.Join(uses, "|")) }
}

// outside lists paths where the word is right.
func outside(paths ...string) option {
	return func(r *rule) { r.outside = regexp.MustCompile(strings.Join(paths, "|")) }
}

// retire matches whole words. A space matches the end of a line, too.
func retire(expr, say string, options ...option) rule {
	expr = strings.ReplaceAll(expr, " ", `\s+`)
	r := rule{re: regexp.MustCompile(`(?i)\b(?:` + expr + `)\b`), say: say}
	for _, o := range options {
		o(&r)
	}
	return r
}

// rules are the retired senses. See docs/reference/glossary.md.
var rules = []rule{
	// Prose.
	retire("beside", "say next to, with, compared with; the feature is shadow routes", inIdents),
	retire("tells|tell|told|telling", "say reports, prints, is configured with", inIdents, except("tells? .{0,20}apart")),
	retire("teller|asker|poke|poked|pokes", "say eventRecorder, apiClient, notify", inIdents),
	retire("anew", "say again, from scratch", inIdents),
	retire("in turns", "say one at a time; active/standby per VIP"),
	retire("makes of BGP|other makes|make of BGP", "say BGP implementations"),
	retire("mend|mends|mended|mending", "say fix, repair", inIdents),
	retire("amiss", "say wrong, failed; drift", inIdents),
	retire("likewise|whoever|withal|whatsoever|thereof|therein|whence|whither|thither|lest|aught|nought|ere|thrice", "use plain words: also, anyone who, of it, from where, so that ... not"),
	retire("stranger|strangers", "say unknown sender, unknown peer, new contributor", inIdents),
	retire("anybody's own|somebody's own", "say custom"),
	retire("goes on|go on|gone on|went on|going on", "say continues, is running", except("go on to")),
	retire("serving on|trying on|serves on", "say keeps serving, retries"),
	retire("by and by", "say over time, gradually"),
	retire("for good", "say permanently", except("for good (reason|measure)")),
	retire("nothing to tell|nothing is said|said nothing|is said", "say has no value, is not set, is reported"),
	retire("since when|how old what|what it is told", "name the value: start time, age, configuration"),
	retire("again and again", "say repeatedly"),
	retire("not plain|is plain|rare packets?|odd packets?", "say slow path, fast path"),
	retire("the whole world|the world's", "say environment, end to end", inIdents),
	retire("wished|wishes", "say desired", inIdents),
	retire("hopeless|census|doubter", "say maxAttempts, recount, WithdrawalTracker", inIdents),
	retire("hears|heard|hear", "say receives", inIdents, except(`"heard"`, `\bn\.heard\b`)), // a key of the VDN API,
	retire("there is none|there are none|there be", "say what is missing: no X exists, without X"),
	retire("so that all is|all is well|is well", "say healthy, correct"),
	// Names.
	retire("servers?'s? half|server half|serverhalf|servers half", "say DSR agent", inIdents),
	retire("direct-nat|direct nat", "say dsr-nat", outside(`^bpf/|^dataplane/`)),
	retire("held weight|heldWeight", "say programmedWeight", inIdents),
	retire("(?:control|dataplane/remove|source/kept|kube/offers|internal/(?:walls|craft|decode|wholefile|webserve|datagram|load))/[a-z_]+\\.go", "name the file's new place"),
}
