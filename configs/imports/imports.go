// Package imports makes run files of other tools' configurations: LLaMA-Factory's, Axolotl's and TRL's YAML, and
// torchtitan's TOML. Every key of theirs is taken over, or listed with the reason why not.
package imports

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs"
)

// Difference is a key of the other tool that is not taken over as it is, or a setting that only the user knows.
type Difference struct {
	Key   string `json:"key"`   // theirs
	Value string `json:"value"` // theirs, "" where it was not given
	Why   string `json:"why"`
}

// Dumper is a script in Python that writes a configuration of torchtitan's registry as JSON, which Import reads.
//
//go:embed tables/torchtitan.py
var Dumper string

// Result is a run file with what differs.
type Result struct {
	Tool        string       `json:"tool"`
	Text        string       `json:"-"` // of the run file
	Differences []Difference `json:"differences"`
	// Taken are settings of ours by the key of theirs that asks for them, and Same their other keys, with the reason
	// why they need none.
	Taken map[string][]string `json:"taken"`
	Same  map[string]string   `json:"same"`
	// Usual are keys of theirs that the file leaves out, with what stands for them there and is written here.
	Usual map[string]any `json:"usual,omitempty"`
}

// Options are what a file does not say.
type Options struct {
	Tool    string // one of Tools; "" goes by the file's keys
	Devices int    // that the other tool would be started on; 0 is 1
}

// tools are those whose files are read, with keys that tell them; the first whose key is there is taken.
var tools = []struct {
	name, tells, table string
	finish             func(*reading)
}{
	{"trl", "dataset_name", "trl", finishTRL},
	{"llamafactory", "model_name_or_path", "llamafactory", finishLlamafactory},
	{"axolotl", "base_model", "axolotl", finishAxolotl},
	{"torchtitan", "training.seq_len training.max_context_length", "torchtitan", finishTorchtitan},
	{"trl-dpo", "", "trl-dpo", finishTRL},
	{"trl-reward", "", "trl-reward", finishTRL},
	{"trl-kto", "", "trl-kto", finishTRL},
	{"trl-grpo", "", "trl-grpo", finishTRL},
}

// Tools are the names of those whose files are read.
func Tools() (out []string) {
	for _, t := range tools {
		out = append(out, t.name)
	}
	return out
}

// rule takes one key of theirs over.
type rule func(r *reading, key string, v any)

// reading is a file while it is read.
type reading struct {
	o    Options
	dir  string         // the file's
	all  map[string]any // theirs, with dotted names
	ours map[string]any // by key
	out  Result
	err  error // the first of what makes the file useless
}

// set enters a setting of ours that one of their keys asks for.
func (r *reading) set(from, ours string, v any) {
	r.ours[ours] = v
	if !slices.Contains(r.out.Taken[from], ours) {
		r.out.Taken[from] = append(r.out.Taken[from], ours)
	}
}

// same says why a key needs no setting.
func (r *reading) same(key, why string) { r.out.Same[key] = why }

// drop takes settings away that the rest of the file makes void.
func (r *reading) drop(why string, ours ...string) {
	for _, key := range ours {
		delete(r.ours, key)
		for from, taken := range r.out.Taken {
			if r.out.Taken[from] = slices.DeleteFunc(taken, func(k string) bool { return k == key }); len(r.out.Taken[from]) == 0 {
				delete(r.out.Taken, from)
				r.same(from, why)
			}
		}
	}
}

// Import reads a file. That it is none of a known tool, or no YAML, JSON or TOML, is an error.
func Import(file string, o Options) (*Result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	tree := map[string]any{}
	if filepath.Ext(file) == ".toml" {
		tree, err = readTOML(text)
	} else {
		err = yaml.Unmarshal(text, &tree)
	}
	if err != nil {
		return nil, &configs.Error{File: file, Why: err.Error()}
	}
	r := &reading{o: o, dir: filepath.Dir(file), all: map[string]any{}, ours: map[string]any{}}
	flatten(r.all, "", tree)
	r.o.Devices = max(1, o.Devices)
	r.out.Taken, r.out.Same = map[string][]string{}, map[string]string{}
	for _, t := range tools {
		told := slices.ContainsFunc(strings.Fields(t.tells), func(key string) bool { return r.all[key] != nil })
		if o.Tool != t.name && (o.Tool != "" || !told) {
			continue
		}
		r.out.Tool = t.name
		keys, err := read(t.table)
		if err != nil {
			return nil, err
		}
		if verb, try := r.untrained(); verb != "" {
			return nil, &configs.Error{File: file, Why: "it is no file of training but of " + verb, Try: try}
		}
		r.rename(keys)
		r.out.Usual = r.stands(keys.usual)
		for _, key := range slices.Sorted(maps.Keys(r.all)) {
			v := r.all[key]
			if s, known := keys.step(key); v == nil || v == "" || fmt.Sprint(v) == "map[]" {
				r.same(key, "is not set")
			} else if known {
				r.take(s, key, v)
			} else {
				r.differ(key, v, "is not known here; look for its like with lfactor config explain SECTION")
			}
		}
		t.finish(r)
		if r.err != nil {
			return nil, r.err
		}
		for key := range r.out.Same { // nothing was written for it after all
			if len(r.out.Taken[key]) == 0 {
				delete(r.out.Usual, key)
			}
		}
		r.out.Text, err = r.text(file)
		return &r.out, err
	}
	return nil, &configs.Error{File: file, Why: "it is of none of the tools whose files are read",
		Try: "--from " + strings.Join(Tools(), ", --from ")}
}

// untrained says what a file is for where nothing is trained by it, and what does that here.
func (r *reading) untrained() (verb, try string) {
	switch has := func(key string) bool { return r.all[key] != nil }; {
	case has("export_dir"):
		return "merging and export", "lfactor ckpt merge, or lfactor ckpt convert"
	case r.out.Tool == "llamafactory" && !has("dataset") && !has("output_dir"):
		return "serving", "lfactor serve"
	case on(r.all["do_predict"]) && !on(r.all["do_train"]):
		return "prediction", "lfactor eval"
	}
	return "", ""
}

// stands enters what stands for the keys that the file leaves out, under their older names too.
func (r *reading) stands(usual map[string]any) map[string]any {
	out := map[string]any{}
	for key, v := range usual {
		if r.all[key] == nil && r.all[older[key]] == nil {
			out[key], r.all[key] = v, v
		}
	}
	return out
}

// rename reads keys by the names that a table has for them, and the groups of torchtitan's optimizer by theirs.
func (r *reading) rename(t *table) {
	r.groups()
	for _, key := range slices.Sorted(maps.Keys(r.all)) {
		if s, ok := t.step(key); ok && s.verb == "as" && r.all[key] != nil {
			r.all[s.rest] = r.all[key]
		}
	}
}

// older are names that keys had before, or that stand for them.
var older = map[string]string{"training.local_batch_size": "training.batch_size", "rl_beta": "dpo_beta"}

// differ lists a key.
func (r *reading) differ(key string, v any, why string) {
	text := ""
	if v != nil {
		text = strings.TrimSpace(fmt.Sprint(v))
	}
	if !slices.ContainsFunc(r.out.Differences, func(d Difference) bool { return d.Key == key && d.Why == why }) {
		r.out.Differences = append(r.out.Differences, Difference{key, text, why})
	}
}

// sections is the order of a run file's.
var sections = strings.Fields("model data objective rollout train optimizer schedule lora freeze plan checkpoint log")

// text writes the run file: settings by sections, with what differs in comments above.
func (r *reading) text(file string) (string, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	tree := map[string]any{}
	for key, v := range r.ours {
		at, parts := tree, strings.Split(key, ".")
		for _, p := range parts[:len(parts)-1] {
			if _, ok := at[p].(map[string]any); !ok {
				at[p] = map[string]any{}
			}
			at = at[p].(map[string]any)
		}
		at[parts[len(parts)-1]] = v
	}
	for _, section := range sections {
		if tree[section] == nil {
			continue
		}
		var part yaml.Node
		if err := part.Encode(tree[section]); err != nil {
			return "", err
		}
		for _, v := range part.Content {
			if v.Kind == yaml.SequenceNode {
				v.Style = yaml.FlowStyle
			}
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: section}, &part)
		delete(tree, section)
	}
	if len(tree) > 0 {
		return "", fmt.Errorf("no section for %v", slices.Sorted(maps.Keys(tree)))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made of %s, a file of %s's, by lfactor config import.\n", filepath.Base(file), r.out.Tool)
	for _, d := range r.out.Differences {
		fmt.Fprintf(&b, "# %s", d.Key)
		if d.Value != "" && len(d.Value) < 60 && !strings.Contains(d.Value, "\n") {
			fmt.Fprintf(&b, "=%s", d.Value)
		}
		fmt.Fprintf(&b, ": %s\n", d.Why)
	}
	if len(r.out.Usual) > 0 {
		fmt.Fprint(&b, "# Not given, so as it is there:")
		for i, key := range slices.Sorted(maps.Keys(r.out.Usual)) {
			fmt.Fprintf(&b, "%s %s %v", map[bool]string{true: ","}[i > 0], key, r.out.Usual[key])
		}
		fmt.Fprintln(&b)
	}
	why := map[string][]string{}
	for key, reason := range r.out.Same {
		if reason != "is not set" && reason != "another key's rule reads it" && !strings.HasPrefix(reason, "is read as") {
			why[reason] = append(why[reason], key)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		slices.Sort(why[reason])
		if n := len(why[reason]); n > 12 {
			why[reason] = append(why[reason][:12], fmt.Sprintf("%d more (-o json lists them)", n-12))
		}
		fmt.Fprintf(&b, "# Nothing is written for %s: %s.\n", strings.Join(why[reason], ", "), reason)
	}
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(root), enc.Close()); err != nil {
		return "", err
	}
	return b.String(), nil
}
