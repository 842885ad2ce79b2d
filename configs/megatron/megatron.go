// Package megatron knows the arguments of Megatron-LM, and those that LoongForge adds: which have no effect
// here, which must have one value, which are refused, and the forms of those whose value is more than a
// word. Arguments that mean a key of ours stand in the tags of configs.Run and configs.Model.
package megatron

import (
	_ "embed"
	"strings"
)

//go:embed flags.txt
var flags string

// IdleFlags change nothing here: they choose among implementations, tune what this runtime does not have, or
// ask for what it always does. They are accepted so that a launch script works as it is.
var IdleFlags = map[string]bool{}

// OnlyFlag is a flag that may stand in a script with values that ask for nothing special.
type OnlyFlag struct {
	Values []string
	Why    string // what is wrong with any other value
}

// OnlyFlags are those that must have one of a few values.
var OnlyFlags = map[string]*OnlyFlag{}

// RefusedFlags ask for something that would be silently missing, and ElsewhereFlags are other trainers', with what to
// give here.
var RefusedFlags, ElsewhereFlags = map[string]string{}, map[string]string{}

func init() {
	verb, rest := "", ""
	for line := range strings.Lines(flags) {
		if line[0] != '\t' {
			verb, rest, _ = strings.Cut(strings.TrimSpace(line), " ")
			continue
		}
		for _, name := range strings.Fields(line) {
			switch verb {
			case "idle":
				IdleFlags[name] = true
			case "only":
				values, why, _ := strings.Cut(rest, " ")
				OnlyFlags[name] = &OnlyFlag{strings.Split(values, ","), why}
			case "refused":
				RefusedFlags[name] = rest
			case "elsewhere":
				ElsewhereFlags[name] = rest
			}
		}
	}
}
