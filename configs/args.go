package configs

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/hydra"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/megatron"
	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// SplitArgs sorts out the arguments of a command that takes a run file: the file, if the first argument is
// neither a flag nor an override, or is the name of a file that is there; the command's own flags (own says
// for each name whether it takes a value); and the rest, for Request.Args.
func SplitArgs(args []string, own map[string]bool) (file string, mine, rest []string) {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") && !assigns(args[0]) {
		file, args = args[0], args[1:]
	}
	for i := 0; i < len(args); i++ {
		name, _, inline := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		takes, ok := own[name]
		if !ok || !strings.HasPrefix(args[i], "-") {
			rest = append(rest, args[i])
			continue
		}
		mine = append(mine, args[i])
		if takes && !inline && i+1 < len(args) {
			i++
			mine = append(mine, args[i])
		}
	}
	return file, mine, rest
}

// assigns reports whether an argument in a run file's place is an override: a file may have "=" in its name,
// as those of sweeps have.
func assigns(arg string) bool {
	if !overridePattern.MatchString(arg) {
		return false
	}
	_, err := os.Stat(arg)
	return err != nil
}

var overridePattern = regexp.MustCompile(`^(\+{0,2})([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)=`)

// readArgs enters overrides and flags.
func (l *loader) readArgs(args []string) {
	dp := "" // that was said before
	if given := l.c.given["plan.dp"]; len(given) > 0 {
		dp = given[len(given)-1].node.Value
	}
	args, notes, faults := loong.Embodied(args, dp)
	l.c.Notices = append(l.c.Notices, notes...)
	for _, f := range faults {
		l.fail(Origin{Layer: source.LayerFlag, Text: f.Flag}, "", f.Why, f.Try)
		if args == nil { // nothing more was read
			for _, key := range []string{"model.path", "data.paths", "data.tokenizer"} {
				l.failed[key] = true
			}
		}
	}
	l.script = isLoong(args)
	var idle []string
	for i := 0; i < len(args); {
		arg := args[i]
		i++
		if !strings.HasPrefix(arg, "--") {
			l.override(arg)
			continue
		}
		name, value, inline := strings.Cut(arg[2:], "=")
		var values []string
		if inline {
			values = []string{value}
		}
		name = strings.ReplaceAll(name, "_", "-")
		for ; !inline && i < len(args) && len(values) < l.arity(name, args[i]) &&
			!strings.HasPrefix(args[i], "--"); i++ {
			values = append(values, args[i])
		}
		if l.flag(name, values) {
			idle = append(idle, strings.Join(append([]string{"--" + name}, values...), " "))
		}
	}
	l.recomputeFlag()
	l.sharding()
	l.lowRecipe()
	l.qkClip()
	l.moveFlag()
	if len(l.conversation) > 0 { // stands beside --chat-template empty, wherever that is
		l.add(setting{table().byName["data.template"], flagNode(table().byName["data.template"], l.conversation),
			Origin{Layer: source.LayerFlag, Text: "--conv-style"}})
	}
	if len(idle) > 0 {
		l.c.Notices = append(l.c.Notices, "accepted, no effect: "+strings.Join(idle, ", "))
	}
}

// arity is the most values a flag takes, if next is the argument after it.
func (l *loader) arity(name, next string) int {
	const many = 1 << 20
	if k := table().byFlag[name]; k != nil {
		flag := k.Flags[slices.IndexFunc(k.Flags, func(f Flag) bool { return f.Name == name })]
		switch {
		case k.Type == "boolean" && flag.Value == "" && (strings.EqualFold(next, "true") ||
			strings.EqualFold(next, "false")):
			return 1
		case k.Type == "boolean" || flag.Value != "":
			return 0
		case strings.HasPrefix(k.Type, "list") && !isOverride(next):
			return many
		case strings.HasPrefix(k.Type, "list"):
			return 0
		}
		return 1
	}
	if isOverride(next) {
		return 0
	}
	return many // of the flags without effect nothing more is known
}

// isOverride says whether an argument sets a key of ours, rather than being a value with a "=".
func isOverride(arg string) bool {
	match := overridePattern.FindStringSubmatch(arg)
	return match != nil && (match[1] != "" || slices.Contains(table().names(""), strings.SplitN(match[2], ".", 2)[0]))
}

// sectionTry says what to write in place of a section's value: its keys one by one.
func sectionTry(name string, value *yaml.Node) string {
	if value.Kind == yaml.MappingNode && len(value.Content) > 1 && value.Content[1].Kind == yaml.ScalarNode {
		return fmt.Sprintf("set each by itself, as %s.%s=%s", name, value.Content[0].Value, value.Content[1].Value)
	}
	return fmt.Sprintf("set one of them: `lfactor config explain %s` lists them", name)
}

// override enters key=value. A leading + or ++ is Hydra's and means nothing here.
func (l *loader) override(arg string) {
	o := Origin{Layer: source.LayerOverride, Text: arg}
	rest, unsaid := strings.CutPrefix(arg, Unsaid)
	switch arg = rest; {
	case unsaid:
		o.Layer = source.LayerDefault
	case l.script:
		o.Layer = source.LayerTop
	}
	match := overridePattern.FindStringSubmatch(arg)
	if l.script && (hydra.Deletes(arg) || hydra.GroupArg(arg) || match != nil &&
		table().byName[match[2]] == nil) || match != nil && loong.IsPart(match[2]) {
		l.loong.Args = append(l.loong.Args, arg)
		return
	}
	if match == nil {
		l.fail(Origin{Layer: source.LayerOverride, Text: "command line"}, source.Quoted(arg),
			"is neither a flag nor key=value", "")
		return
	}
	name := match[2]
	key := table().byName[name]
	if key == nil {
		prefix := ""
		if i := strings.LastIndex(name, "."); i > 0 && table().sections[name[:i]] {
			prefix = name[:i]
		}
		if node, err := source.ParseValue(arg[len(match[0]):]); table().sections[name] && err == nil {
			l.fail(o, name, "is a section of keys, not a key", sectionTry(name, node))
			return
		}
		l.unknown(Origin{Layer: source.LayerOverride, Text: "command line"}, prefix, name)
		return
	}
	node, err := source.ParseValue(arg[len(match[0]):])
	if err != nil {
		l.fail(o, name, "the value is no YAML", "quote it")
		return
	}
	l.add(setting{key, node, o})
}

// flag enters one flag and says whether it is one that has no effect.
func (l *loader) flag(name string, values []string) bool {
	o := Origin{Layer: source.LayerFlag, Text: "--" + name}
	if name == "vocab-size" && slices.Equal(values, []string{"0"}) {
		return true // a model without tokens, behind --tokenizer-type NullTokenizer
	}
	if k := table().byFlag[name]; k != nil {
		if name == "custom-pipeline-recompute-layers" {
			l.custom = slices.Clone(values)
		}
		l.keyFlag(k, name, values, o)
		return false
	}
	switch {
	case clipFlags[name]:
		l.clipFlag(name, values, o)
	case lowFlags[name]:
		l.lowFlag(name, values, o)
	case l.wordFlag(name, values, o):
	case name == "config-file":
		l.configFile(values, o)
	case name == "pipeline-model-parallel-layout":
		l.layoutFlag(values, o)
	case name == "rope-scaling-factor" && l.script && len(values) == 1:
		l.loong.RopeFactor = values[0]
	case name == "train-samples":
		l.samplesFlag(values, o)
	case name == "exit-interval":
		l.exitFlag(values, o)
	case name == "recompute-method":
		l.uniform = slices.Equal(values, []string{"uniform"})
		if !l.uniform && !slices.Equal(values, []string{"block"}) {
			l.fail(o, "", source.Quoted(strings.Join(values, " "))+", want block or uniform", "")
		}
	case name == "recompute-num-layers":
		l.recompute = values
	case moveFlags[name]:
		l.moved = append(l.moved, values...)
	case name == "conv-style":
		l.conversation = values
	case megatron.IdleFlags[name]:
		if why := idleFlag(name, values); why != "" {
			l.fail(o, "", why, "leave it out: it has no effect here")
			return false
		}
		return true
	case megatron.OnlyFlags[name] != nil:
		if slices.ContainsFunc(megatron.OnlyFlags[name].Values, func(v string) bool {
			return source.SameValue(v, strings.Join(values, " "))
		}) {
			return true
		}
		l.fail(o, "", fmt.Sprintf("%s: %s", source.Quoted(strings.Join(values, " ")), megatron.OnlyFlags[name].Why), "")
	case megatron.RefusedFlags[name] != "":
		l.fail(o, "", megatron.RefusedFlags[name], "")
	case strings.HasPrefix(name, "wandb-"):
		return true
	default:
		try := megatron.ElsewhereFlags[name]
		if try == "" {
			try = source.DidYouMean(name, knownFlags())
		}
		l.fail(o, "", "unknown flag", try)
	}
	return false
}

// recomputeFlag enters how many layers of each stage are recomputed. With the method uniform the flag says
// how many layers share one saved input instead, which is always one here.
func (l *loader) recomputeFlag() {
	switch o := (Origin{Layer: source.LayerFlag, Text: "--recompute-num-layers"}); {
	case len(l.recompute) == 0:
	case l.custom != nil: // as LoongForge: layers by stage, where they are given
		l.c.Notices = append(l.c.Notices,
			fmt.Sprintf("%s %s: --custom-pipeline-recompute-layers %s says how many layers of each stage",
				o.Text, strings.Join(l.recompute, " "), strings.Join(l.custom, " ")))
	case !l.uniform:
		k := table().byName["plan.recompute_layers"]
		l.add(setting{k, flagNode(k, l.recompute), o})
	case !slices.Equal(l.recompute, []string{"1"}):
		l.c.Notices = append(l.c.Notices, fmt.Sprintf("%s %s with --recompute-method uniform: the input of every "+
			"layer is kept here, not of every %[2]s", o.Text, strings.Join(l.recompute, " ")))
	}
}

// sharding lets --data-parallel-sharding-strategy say what is shared out where --use-distributed-optimizer stands
// beside it, wherever that is: Megatron-FSDP wants both.
func (l *loader) sharding() {
	given := l.c.given["plan.zero"]
	if !slices.ContainsFunc(given, func(s setting) bool {
		return s.origin.Text == "--data-parallel-sharding-strategy" && s.node.Value != "0"
	}) {
		return
	}
	l.c.given["plan.zero"] = slices.DeleteFunc(given, func(s setting) bool {
		return s.origin.Text == "--use-distributed-optimizer" && s.node.Value == "1"
	})
}

// samplesFlag reads how many samples a run learns, of which Megatron makes as many steps as they fill.
func (l *loader) samplesFlag(values []string, o Origin) {
	n, err := strconv.Atoi(strings.Join(values, " "))
	if err != nil || n < 1 {
		l.fail(o, "train.steps", source.Quoted(strings.Join(values, " "))+", want a number of samples", "")
		return
	}
	l.samples, l.samplesAt = n, o
}

// exitFlag reads how many steps a run makes at most, whatever it is scheduled for.
func (l *loader) exitFlag(values []string, o Origin) {
	n, err := strconv.Atoi(strings.Join(values, " "))
	if err != nil || n < 1 {
		l.fail(o, "train.steps", source.Quoted(strings.Join(values, " "))+", want a number of steps", "")
		return
	}
	l.exitAfter, o.Text = n, fmt.Sprintf("%s %d", o.Text, n)
}

func knownFlags() []string {
	known := slices.Concat(source.SortedKeys(table().byFlag), source.SortedKeys(megatron.IdleFlags),
		source.SortedKeys(megatron.OnlyFlags), source.SortedKeys(megatron.RefusedFlags),
		source.SortedKeys(expertWords), source.SortedKeys(clipFlags), source.SortedKeys(lowFlags))
	return append(known, "config-file", "pipeline-model-parallel-layout", "exit-interval", "train-samples",
		"recompute-method", "recompute-num-layers", "conv-style")
}

// keyFlag enters a flag that means a key.
func (l *loader) keyFlag(k *Key, name string, values []string, o Origin) {
	flag := k.Flags[slices.IndexFunc(k.Flags, func(f Flag) bool { return f.Name == name })]
	switch {
	case flag.Value != "":
		value, why := k.bare(flag, values)
		if why != "" {
			l.fail(o, k.Name, why, "leave the flag out, or set "+k.Name)
			return
		}
		values = []string{value}
	case k.Type == "boolean" && len(values) == 0:
		values = []string{"true"}
	case len(values) == 0:
		l.fail(o, k.Name, "the flag wants a value", "")
		return
	}
	for i, v := range values {
		if to, ok := k.from[v]; ok {
			values[i] = to
		}
	}
	l.add(setting{k, flagNode(k, values), o})
}

// bare gives the value that a flag without an argument sets on its key. With the argument true it sets the same, with
// false the other of a boolean's two values; why says that another argument was given.
func (k *Key) bare(flag Flag, values []string) (value, why string) {
	if len(values) == 0 {
		return flag.Value, ""
	}
	yes, isBool := truth(strings.Join(values, " "))
	switch {
	case isBool && yes:
		return flag.Value, ""
	case isBool && k.Type == "boolean":
		return strconv.FormatBool(flag.Value != "true"), ""
	}
	return "", fmt.Sprintf("%s: the flag takes no value, it means %s", source.Quoted(strings.Join(values, " ")),
		flag.Value)
}

// truth reads a yes or a no as launch scripts write them.
func truth(text string) (yes, ok bool) {
	switch strings.ToLower(text) {
	case "true", "1":
		return true, true
	case "false", "0":
		return false, true
	}
	return false, false
}

// switches begin the names of flags that turn something on or off and take no value.
var switches = regexp.MustCompile(`^(use|no|enable|disable|overlap)-`)

// idleFlag says what is wrong with the value of a flag that has no effect, "" if nothing is.
func idleFlag(name string, values []string) string {
	text := strings.Join(values, " ")
	if _, ok := truth(text); ok || len(values) == 0 || !switches.MatchString(name) {
		return ""
	}
	return source.Quoted(text) + ": the flag takes no value"
}

// flagNode turns the words behind a flag into a value.
func flagNode(k *Key, values []string) *yaml.Node {
	switch k.Type {
	case "list of " + pathType:
		return megatron.Weighted(values)
	case "list of integer", "list of number":
		return source.ListNode(strings.FieldsFunc(strings.Join(values, ","), func(r rune) bool {
			return r == ',' || r == ' '
		}))
	case "list of string":
		return source.ListNode(values)
	}
	return source.ScalarNode(strings.Join(values, " "))
}

// layoutFlag enters Megatron's pipeline layout.
func (l *loader) layoutFlag(values []string, o Origin) {
	layers, err := megatron.Layout(strings.Join(values, ""))
	if err != nil {
		l.fail(o, "plan.layers", err.Error(), "set plan.layers")
		return
	}
	l.add(setting{table().byName["plan.layers"], source.ListNode(layers), o})
}
