package configs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// lowFlags are arguments of Megatron's about products in FP8 that say something together with --fp8-recipe.
var lowFlags = source.Set("fp8-format", "fp8-amax-compute-algo", "fp8-amax-history-len")

// lowRecipes are the recipes by Megatron's name of one and --fp8-format.
var lowRecipes = map[string]map[string]string{
	"delayed":    {"hybrid": "delayed", "e4m3": "delayed_e4m3"},
	"tensorwise": {"hybrid": "tensor", "e4m3": "tensor_e4m3"},
	"blockwise":  {"e4m3": "block_pow2"},
	"mxfp8":      {"e4m3": "mxfp8"},
}

// lowFlag notes one.
func (l *loader) lowFlag(name string, values []string, o Origin) {
	value, one := strings.Join(values, " "), map[string][]string{"fp8-format": {"e4m3", "hybrid"},
		"fp8-amax-compute-algo": {"most_recent", "max"}}[name]
	if one != nil && !slices.Contains(one, value) {
		l.fail(o, "", source.Quoted(value)+", want "+strings.Join(one, " or "), "")
		return
	}
	if l.low == nil {
		l.low = map[string]string{}
	}
	l.low[name] = value
}

// lowRecipe enters the recipe that --fp8-format and --fp8-recipe mean together, whose default is delayed,
// and for delayed ones how many steps scales follow from: --fp8-amax-history-len of them, or the last one.
func (l *loader) lowRecipe() {
	const key, history = "train.low_precision", "train.amax_history"
	if len(l.low) == 0 {
		return
	}
	format, at := l.low["fp8-format"], l.flagged(key, "--fp8-recipe")
	if format == "" && at < 0 { // without it Megatron has no FP8
		for _, flag := range source.SortedKeys(l.low) {
			l.c.Notices = append(l.c.Notices, fmt.Sprintf("--%s %s: nothing is rounded without --fp8-format",
				flag, l.low[flag]))
		}
		return
	}
	recipe := "delayed"
	if at >= 0 {
		for megatron, to := range table().byName[key].from {
			if recipe = l.c.given[key][at].node.Value; recipe == to {
				recipe = megatron
				break
			}
		}
	}
	o := Origin{Layer: source.LayerFlag, Text: "--fp8-format"}
	name := lowRecipes[recipe][format]
	switch {
	case format == "": // --fp8-recipe says here what it says
		name = recipe
	case name == "" && lowRecipes[recipe] != nil:
		l.fail(o, key, fmt.Sprintf("%s: --fp8-recipe %s has e4m3 in all three products", source.Quoted(format), recipe),
			"give e4m3")
		return
	case name == "":
		l.fail(o, key, fmt.Sprintf("%s: --fp8-recipe %s has its own formats", source.Quoted(format), recipe),
			"leave it out")
		return
	case at >= 0:
		l.c.given[key][at].node = flagNode(table().byName[key], []string{name})
	default:
		l.before(key, name, o)
	}
	steps := l.low["fp8-amax-history-len"]
	if !strings.HasPrefix(name, "delayed") {
		for _, flag := range source.SortedKeys(l.low) {
			if flag != "fp8-format" {
				l.c.Notices = append(l.c.Notices, fmt.Sprintf("--%s %s: the scales of %s are of now", flag,
					l.low[flag], name))
			}
		}
		return
	}
	if steps != "" && l.low["fp8-amax-compute-algo"] == "max" {
		l.before(history, steps, Origin{Layer: source.LayerFlag, Text: "--fp8-amax-history-len"})
	} else if steps != "" && steps != "1" {
		l.c.Notices = append(l.c.Notices, fmt.Sprintf("--fp8-amax-history-len %s: scales follow from the step "+
			"before, as --fp8-amax-compute-algo most_recent, the default, has it; max takes the history", steps))
	}
}

// before sets a key, which one that is given by name outweighs, whatever its place among the arguments.
func (l *loader) before(key, value string, o Origin) {
	given := l.c.given[key]
	at := slices.IndexFunc(given, func(s setting) bool { return s.origin.Layer >= source.LayerOverride })
	if at < 0 {
		at = len(given)
	}
	k := table().byName[key]
	o.Layer = source.LayerOverride
	l.c.given[key] = slices.Insert(given, at, setting{k, flagNode(k, []string{value}), o})
}

// flagged is the place of what a flag has set a key to, -1 for nothing.
func (l *loader) flagged(key, flag string) int {
	return slices.IndexFunc(l.c.given[key], func(s setting) bool { return s.origin.Text == flag })
}
