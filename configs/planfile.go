package configs

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// PlanFile is a plan that was chosen for a model: settings that take the place of the run file's.
type PlanFile struct {
	File     string
	Model    string // as Model.Identity
	Settings []string
	line     int // of the model
}

// planSettings are the keys that a plan may set.
var planSettings = []string{"plan.pp", "plan.tp", "plan.dp", "plan.cp", "plan.cp_comm", "plan.cp_layout",
	"plan.ulysses", "plan.ep", "plan.etp", "plan.zero", "plan.zero_ranks", "plan.sequence_parallel",
	"plan.schedule", "plan.virtual_stages", "plan.layers", "plan.recompute", "plan.recompute_layers",
	"plan.offload", "plan.offload_tensors", "plan.recompute_tensors", "plan.keep_tensors", "plan.encoder.recompute",
	"plan.projector_recompute", "plan.encoder.over", "plan.encoder.tp", "plan.encoder.ranks", "plan.encoder.ahead",
	"plan.encoder.fill", "plan.encoder.patches", "plan.encoder.device", "plan.overlap", "plan.overlap_microbatches",
	"plan.bucket_bytes", "plan.chunk_size", "plan.keep_chunks", "plan.procs", "plan.memory", "train.routing_bound",
	"train.micro_batch", "train.global_batch"}

// unworked are keys of models that say nothing about the work.
var unworked = source.Set("parameters", "active_parameters", "names", "source", "architectures")

// Identity names an architecture, so that a plan for one model is not carried out for another: what a reader
// needs to see the difference, and a hash of every key that does not have its default. A key that is added
// later, and that a model does not set, leaves the hash as it is.
func (m *Model) Identity() string {
	h := fnv.New32a()
	t := table()
	for _, name := range source.SortedKeys(t.byName) {
		k := t.byName[name]
		if !k.model || unworked[strings.TrimPrefix(name, overrides+".")] {
			continue
		}
		if value := formatValue(k.field(nil, m)); value != k.format(k.Default) {
			fmt.Fprintf(h, "%s: %s\n", name, value)
		}
	}
	return fmt.Sprintf("%s layers=%d hidden=%d intermediate=%d heads=%d vocab=%d #%08x", m.ModelType,
		m.Layers, m.Hidden, m.Intermediate, m.Heads, m.Vocab, h.Sum32())
}

// Text is the file's content, with comment lines before it.
func (p *PlanFile) Text(comments ...string) []byte {
	var b strings.Builder
	for _, c := range comments {
		fmt.Fprintf(&b, "# %s\n", c)
	}
	fmt.Fprintf(&b, "model: %q\nsettings:\n", p.Model)
	for _, s := range p.Settings {
		key, value, _ := strings.Cut(s, "=")
		fmt.Fprintf(&b, "  %s: %s\n", key, value)
	}
	return []byte(b.String())
}

// OpenPlan reads a plan file.
func OpenPlan(file string) (*PlanFile, error) {
	text, err := source.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ReadPlan(file, text)
}

// ReadPlan reads a plan file's content. Errors are *Error values.
func ReadPlan(file string, text []byte) (*PlanFile, error) {
	root, err := source.ParseYAML(file, text)
	if err != nil {
		return nil, err
	}
	p := &PlanFile{File: file}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		switch key.Value {
		case "model":
			p.Model, p.line = value.Value, value.Line
		case "settings":
			if err := p.settings(value); err != nil {
				return nil, err
			}
		default:
			return nil, &Error{File: file, Line: key.Line, Key: key.Value, Why: "is not part of a plan",
				Try: source.DidYouMean(key.Value, []string{"model", "settings"})}
		}
	}
	if p.Model == "" || p.Settings == nil {
		return nil, &Error{File: file, Why: "is not a plan: it names no model or no settings",
			Try: "write one with lfactor plan FILE --hosts 1 --out " + file}
	}
	return p, nil
}

// settings reads the settings that a plan makes. Only those of plans are taken, so that a plan
// cannot change what is trained.
func (p *PlanFile) settings(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return &Error{File: p.File, Line: n.Line, Key: "settings", Why: "is not a mapping of keys to values"}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		known := false
		for _, k := range planSettings {
			known = known || k == key.Value
		}
		if !known {
			return &Error{File: p.File, Line: key.Line, Key: "settings." + key.Value,
				Why: "is not a setting of a plan", Try: source.DidYouMean(key.Value, planSettings)}
		}
		text := value.Value
		if value.Kind == yaml.SequenceNode {
			var parts []string
			for _, v := range value.Content {
				parts = append(parts, v.Value)
			}
			text = "[" + strings.Join(parts, ", ") + "]"
		}
		p.Settings = append(p.Settings, key.Value+"="+text)
	}
	return nil
}

// Fits refuses a configuration whose model is not the plan's.
func (p *PlanFile) Fits(c *Config) error {
	if have := c.Model.Identity(); have != p.Model {
		return &Error{File: p.File, Line: p.line, Key: "model",
			Why: fmt.Sprintf("the plan is for another model: %s, the run has %s", p.Model, have),
			Try: "plan again with lfactor plan " + c.file + " --hosts …"}
	}
	return nil
}
