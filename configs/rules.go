package configs

import (
	"fmt"
	"slices"
	"strings"
)

// At reports a fault of a key: why it cannot be, and what would be right, "" if there is nothing to
// suggest. The key's place is found by whoever collects.
type At func(key, why, try string)

// Rule holds settings to what this package does not know: the model that they describe, or files. Load
// applies every rule after the checks of the sections and reports what all of them find at once.
type Rule struct {
	Name  string // of the rule, for panics; rules are applied in the order of names
	Files bool   // looks at files: is applied where Request.Files asks for it
	Model bool   // needs a model: is applied where the model's own settings are without a fault
	Check func(c *Config, at At)
}

var rules []Rule

// Hold adds a rule. Packages above this one call it when they are loaded, before the first configuration is read.
func Hold(r Rule) {
	if slices.ContainsFunc(rules, func(o Rule) bool { return o.Name == r.Name }) {
		panic(fmt.Sprintf("configs: two rules %q", r.Name))
	}
	rules = append(rules, r)
	slices.SortFunc(rules, func(a, b Rule) int { return strings.Compare(a.Name, b.Name) })
}

// applyRules lets every rule report what it finds. Model says whether the model's own settings are without a fault.
func (l *loader) applyRules(model bool) {
	for _, r := range rules {
		if r.Files && !l.files || r.Model && !model || r.Files && l.modelOnly {
			continue
		}
		r.Check(l.c, l.fault)
	}
}
