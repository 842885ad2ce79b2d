package checkpoint

import (
	"bytes"
	"cmp"
	_ "embed" // the table of keys
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// AdapterUse is what a saved adapter is wanted for.
type AdapterUse int

// An adapter is added to the weights of its base, or computes beside them in a server.
const (
	Merged AdapterUse = iota
	Served
)

// String ends the sentence that says what cannot be done.
func (u AdapterUse) String() string { return [...]string{"added to weights", "served"}[u] }

// adapterKey says what becomes of a key of PEFT's LoraConfig for each use: + acts, . changes nothing that a saved
// adapter computes, and - is refused unless its value is one of off, which switch it off.
type adapterKey struct {
	uses string // of Merged and Served
	why  string // of a refusal, or why nothing changes
	off  []string
}

//go:embed adapterkeys.txt
var adapterTable string

// adapterKeys are the keys of LoraConfig of peft 0.21 with those of PeftConfig, and what swift adds: a line of the table has a key,
// its uses, why, and behind a bar values that switch it off beside the usual ones.
var adapterKeys = func() map[string]adapterKey {
	out := map[string]adapterKey{}
	for line := range strings.Lines(adapterTable) {
		said, off, _ := strings.Cut(strings.TrimSpace(line), " | ")
		key, rest, _ := strings.Cut(said, " ")
		uses, why, _ := strings.Cut(rest, " ")
		out[key] = adapterKey{uses, why, append([]string{"null", "false", "[]", "{}", `""`}, strings.Fields(off)...)}
	}
	return out
}()

// ParseAdapter reads a configuration of PEFT's into a struct, and gives all its keys. It refuses one with a key that
// changes what the adapter computes in a way that a use does not have, or that PEFT 0.21 does not know.
func ParseAdapter(text []byte, use AdapterUse, into any) (all map[string]json.RawMessage, err error) {
	if err := cmp.Or(json.Unmarshal(text, &all), json.Unmarshal(text, into)); err != nil {
		return nil, err
	}
	if kind := string(all["peft_type"]); kind != `"LORA"` {
		return nil, fmt.Errorf("peft_type %s: only LORA can be %v", kind, use)
	}
	for _, key := range SortedKeys(all) {
		k, ok := adapterKeys[key]
		if !ok {
			k = adapterKey{uses: "--", why: "no key of PEFT 0.21", off: adapterKeys["peft_type"].off}
		}
		var value bytes.Buffer
		if err := json.Compact(&value, all[key]); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if k.uses[use] == '-' && !slices.Contains(k.off, value.String()) {
			return nil, fmt.Errorf("%s: %s cannot be %v: %s", key, value.String(), use, k.why)
		}
	}
	if r := string(all["r"]); r == "" || r[0] < '1' || r[0] > '9' {
		return nil, fmt.Errorf("r: %s, want at least 1", cmp.Or(r, "none"))
	}
	return all, nil
}

// Reach is what adapter_config.json says of the modules that have additions.
type Reach struct {
	Targets Targets         `json:"target_modules"` // none are PEFT's of the family
	Exclude Targets         `json:"exclude_modules"`
	Layers  json.RawMessage `json:"layers_to_transform"` // a number or several
	Lists   Targets         `json:"layers_pattern"`
	Tie     bool            `json:"ensure_weight_tying"` // a table's other end has what one end has
}

// has reports whether a module is named by a list of ends or, whole, by a regular expression of Python's. Otherwise is
// the answer where the expression cannot be read here, or takes longer than expressionTime.
func (t Targets) has(module string, otherwise bool) bool {
	if t.Names != nil {
		return slices.ContainsFunc(t.Names, func(end string) bool { return strings.HasSuffix("."+module, "."+end) })
	}
	of, err := regexp2.Compile(`\A(?:`+t.Pattern+`)\z`, regexp2.RE2, regexp2.OptionMaxBacktrackingStackSize(1<<22))
	if err != nil {
		return otherwise
	}
	of.MatchTimeout = expressionTime
	has, err := of.MatchString(module)
	return err != nil && otherwise || has
}

// expressionTime bounds an expression of a stranger's file at one name: they may take exponential time.
const expressionTime = time.Second

// Check refuses a file with weights that PEFT's check_target_module_exists passes over.
func (r Reach) Check(f *File) error {
	layers := strings.FieldsFunc(string(r.Layers), func(c rune) bool { return c < '0' || c > '9' })
	list := cmp.Or(strings.Join(r.Lists.Names, "|"), r.Lists.Pattern, "[^.]*")
	at, err := regexp.Compile(`^(?:.*?\.)?(?:` + list + `)\.(\d+)\..*$`)
	ends := Targets{Names: []string{"lm_head", "embed_tokens"}}
	for _, t := range f.Tensors() {
		module, _, lora := strings.Cut(strings.TrimPrefix(t.Name, AdapterPrefix), ".lora_")
		names, key := r.Targets.Names, ""
		switch {
		case r.Exclude.has(module, false):
			key = "exclude_modules"
		case names == nil && (r.Targets.Pattern == "" || r.Targets.Pattern == "all-linear"): // the latter is all that can be
		case !r.Targets.has(module, true) && !(r.Tie && ends.has(module, false)):
			key = "target_modules"
		case names != nil && !slices.Contains(names, module) && len(layers) > 0 && err == nil &&
			!slices.Contains(layers, at.ReplaceAllString(module, "$1")):
			key = "layers_to_transform"
		}
		if lora && key != "" {
			return &Error{File: f.Path, Tensor: t.Name, Fault: Extra, Why: fmt.Sprintf(
				"by %s of %s PEFT passes over it: let the key have its module, or take it out of the file", key, AdapterConfigName)}
		}
	}
	return nil
}
