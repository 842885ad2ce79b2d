// Package imports makes run files of other tools' configurations: LLaMA-Factory's and Axolotl's YAML, and
// torchtitan's TOML. Every key of theirs is taken over, or listed with the reason why not.
package imports

import (
	"bytes"
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

// Result is a run file with what differs.
type Result struct {
	Tool        string       `json:"tool"`
	Text        string       `json:"-"` // of the run file
	Differences []Difference `json:"differences"`
	// Usual are keys of theirs that the file leaves out, with what stands for them there and is written here.
	Usual map[string]any `json:"usual,omitempty"`
}

// Options are what a file does not say.
type Options struct {
	Tool    string // llamafactory, axolotl or torchtitan; "" goes by the file's keys
	Devices int    // that the other tool would be started on; 0 is 1
}

// tools are those whose files are read, with a key that tells them.
var tools = []struct {
	name, tells string
	rules       map[string]rule
	usual       map[string]any // what stands for keys that a file leaves out and that mean something else here
	finish      func(*reading)
}{
	{"llamafactory", "model_name_or_path", llamafactory, llamafactoryUsual, finishLlamafactory},
	{"axolotl", "base_model", axolotl, axolotlUsual, finishAxolotl},
	{"torchtitan", "training.seq_len", torchtitan, torchtitanUsual, finishTorchtitan},
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
	all  map[string]any // theirs, with dotted names
	ours map[string]any // by key
	out  Result
}

// Import reads a file. That it is none of a known tool, or no YAML or TOML, is an error.
func Import(file string, o Options) (*Result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	if filepath.Ext(file) == ".toml" {
		all, err = readTOML(text)
	} else {
		err = yaml.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, &configs.Error{File: file, Why: err.Error()}
	}
	r := &reading{o: o, all: all, ours: map[string]any{}}
	r.o.Devices = max(1, o.Devices)
	for _, t := range tools {
		if o.Tool == t.name || o.Tool == "" && all[t.tells] != nil {
			r.out.Tool = t.name
			r.out.Usual = r.stands(t.usual)
			for _, key := range slices.Sorted(maps.Keys(all)) {
				take, known := t.rules[key]
				if !known {
					r.differ(key, all[key], "is not known here; look for its like with lfactor config explain SECTION")
					continue
				}
				take(r, key, all[key])
			}
			t.finish(r)
			r.out.Text, err = r.text(file)
			return &r.out, err
		}
	}
	return nil, &configs.Error{File: file, Why: "it is of none of the tools whose files are read",
		Try: "--from " + strings.Join(Tools(), ", --from ")}
}

// stands enters what stands for the keys that the file leaves out, under their older names too.
func (r *reading) stands(usual map[string]any) map[string]any {
	out := map[string]any{}
	name := ""
	for _, key := range []string{"optim", "optimizer"} {
		if r.all[key] != nil {
			name = strings.ToLower(fmt.Sprint(r.all[key]))
		}
	}
	adam := name == "" || strings.Contains(name, "adam")
	for key, v := range usual {
		if r.all[key] == nil && r.all[older[key]] == nil && (adam || !strings.HasPrefix(key, "adam_")) {
			out[key], r.all[key] = v, v
		}
	}
	return out
}

// older are names that keys had before.
var older = map[string]string{"training.local_batch_size": "training.batch_size"}

// differ lists a key.
func (r *reading) differ(key string, v any, why string) {
	text := ""
	if v != nil {
		text = strings.TrimSpace(fmt.Sprint(v))
	}
	r.out.Differences = append(r.out.Differences, Difference{key, text, why})
}

// sections is the order of a run file's.
var sections = []string{
	"model",
	"data",
	"objective",
	"train",
	"optimizer",
	"schedule",
	"lora",
	"plan",
	"checkpoint",
	"log",
}

// text writes the run file: settings by sections, with what differs in comments above.
func (r *reading) text(file string) (string, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	left := maps.Clone(r.ours)
	for _, section := range sections {
		part := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.Sorted(maps.Keys(left)) {
			name, ok := strings.CutPrefix(key, section+".")
			if !ok {
				continue
			}
			var v yaml.Node
			if err := v.Encode(left[key]); err != nil {
				return "", err
			}
			if v.Kind == yaml.SequenceNode {
				v.Style = yaml.FlowStyle
			}
			part.Content = append(part.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &v)
			delete(left, key)
		}
		if len(part.Content) > 0 {
			root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: section}, part)
		}
	}
	if len(left) > 0 {
		return "", errors.Join(fmt.Errorf("no section for %v", slices.Sorted(maps.Keys(left))))
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
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(root), enc.Close()); err != nil {
		return "", err
	}
	return b.String(), nil
}
