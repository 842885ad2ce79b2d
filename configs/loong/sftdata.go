package loong

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// SFTFormat is an entry of a file of LoongForge's --sft-dataset-config: the shape of a data set of
// conversations, the keys that hold its parts, and what its roles are called.
type SFTFormat struct {
	Name   string
	Format string // alpaca, sharegpt or openai
	// keys by what they hold: messages, images, prompt …; what is not here is not read
	Columns map[string]string
	// keys of a turn and names of roles: role_tag, user_tag …; nil for the usual ones
	Tags map[string]string
	// of an entry of LLaMA-Factory's dataset_info.json where its data lie and which part is meant: file_name, split …;
	// nil of LoongForge's
	From map[string]string
}

// Holds is the format of what an entry of LLaMA-Factory's holds beside conversations: preference, judged, or "".
func (f *SFTFormat) Holds() string {
	switch {
	case f.From != nil && f.Columns["kto_tag"] != "":
		return "judged"
	case strings.EqualFold(f.From["ranking"], "true"):
		return "preference"
	}
	return ""
}

// FactoryFile is the name of LLaMA-Factory's file, and FactorySources are keys of which each of its entries has one. Its
// columns and tags stand beside what is taken where an entry has none of them.
// Source: its src/llamafactory/data/parser.py.
const FactoryFile = "dataset_info.json"

var (
	// FactorySources are in the order in which they count.
	FactorySources = []string{"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name", "file_name"}
	factoryColumns = map[string]string{"prompt": "instruction", "query": "input", "response": "output", "history": "",
		"messages": "conversations", "system": "", "tools": "", "images": "", "videos": "", "audios": "", "chosen": "",
		"rejected": "", "kto_tag": ""}
	factoryTags = map[string]string{"role_tag": "from", "content_tag": "value", "user_tag": "human",
		"assistant_tag": "gpt", "observation_tag": "observation", "function_tag": "function_call", "system_tag": "system"}
)

// SFTFile is the name of the file that LoongForge takes by default; its entries are known without it.
const SFTFile = "sft_dataset_config.yaml"

// sftColumns and sftTags are the keys that an entry of each format may have.
var (
	sftColumns = map[string][]string{
		"alpaca":   {"prompt", "query", "response", "history", "system"},
		"sharegpt": {"messages", "images", "videos", "system", "tools"},
		"openai":   {"messages", "tools", "images", "videos"},
	}
	sftTags = []string{"role_tag", "content_tag", "user_tag", "assistant_tag", "system_tag", "tool_tag",
		"observation_tag", "function_tag"}
)

// SFTKnown are the entries of LoongForge's own file.
var SFTKnown = func() map[string]SFTFormat {
	alpaca := map[string]string{"prompt": "instruction", "query": "input", "response": "output"}
	extended := maps.Clone(alpaca)
	extended["history"], extended["system"] = "history", "system"
	roles := map[string]string{"role_tag": "role", "content_tag": "content", "user_tag": "user",
		"assistant_tag": "assistant"}
	system := maps.Clone(roles)
	system["system_tag"] = "system"
	tool := maps.Clone(system)
	tool["tool_tag"] = "tool"
	media := map[string]string{"messages": "messages", "images": "images"}
	out := map[string]SFTFormat{}
	for _, f := range []SFTFormat{
		{Name: "default", Format: "alpaca", Columns: alpaca}, {Name: "alpaca", Format: "alpaca", Columns: alpaca},
		{Name: "extended_alpaca", Format: "alpaca", Columns: extended},
		{Name: "sharegpt", Format: "sharegpt", Columns: map[string]string{"messages": "messages"}, Tags: system},
		{Name: "openai", Format: "openai", Tags: tool,
			Columns: map[string]string{"messages": "messages", "tools": "tools"}},
		{Name: "multimodal", Format: "sharegpt", Columns: media, Tags: roles},
		{Name: "multimodal_sharegpt", Format: "sharegpt", Columns: media, Tags: map[string]string{"role_tag": "from",
			"content_tag": "value", "user_tag": "human", "assistant_tag": "gpt", "system_tag": "system"}},
	} {
		out[f.Name] = f
	}
	return out
}()

// SFTFormats returns the entries of a file by name, or those that LoongForge comes with for "". Errors are
// *source.Error values.
func SFTFormats(file string) (map[string]SFTFormat, error) {
	if file == "" {
		return SFTKnown, nil
	}
	text, err := source.ReadFile(file)
	if err != nil {
		return nil, err
	}
	root, err := source.ParseYAML(file, text) // JSON is YAML
	if err != nil {
		return nil, err
	}
	out := map[string]SFTFormat{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		r := sftReader{file: file}
		f := r.entry(root.Content[i], root.Content[i+1])
		if r.err != nil {
			return nil, r.err
		}
		out[f.Name] = f
	}
	return out, nil
}

// FindSFT is one entry of a file, or of those that LoongForge comes with for file "".
func FindSFT(file, name string) (SFTFormat, error) {
	all, err := SFTFormats(file)
	if err != nil {
		return SFTFormat{}, err
	}
	f, ok := all[name]
	if !ok {
		return f, &source.Error{File: cmp.Or(file, "LoongForge's data sets"), Why: "there is no entry " +
			source.Quoted(name), Try: source.Nearest(name, source.SortedKeys(all))}
	}
	return f, nil
}

type sftReader struct {
	file string
	err  error // the first
}

func (r *sftReader) fail(n *yaml.Node, key, why, try string) {
	if r.err == nil {
		r.err = &source.Error{File: r.file, Line: n.Line, Key: key, Why: why, Try: try}
	}
}

// entry reads one entry. What is not said to be of some format is alpaca, as in LoongForge.
func (r *sftReader) entry(name, n *yaml.Node) SFTFormat {
	f := SFTFormat{Name: name.Value, Format: "alpaca"}
	if n.Kind != yaml.MappingNode {
		r.fail(n, name.Value, source.NodeKind(n)+", want a mapping with format, columns and tags", "")
		return f
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; (key.Value == "format" || key.Value == "formatting") && n.Content[i+1].Tag != "!!null" {
			f.Format = n.Content[i+1].Value
		}
	}
	columns, tags := sftColumns[f.Format], sftTags
	if columns == nil {
		r.fail(n, name.Value+".format", source.Quoted(f.Format)+" is no format of conversations",
			source.Nearest(f.Format, source.SortedKeys(sftColumns)))
		return f
	}
	if slices.ContainsFunc(n.Content, func(k *yaml.Node) bool { return slices.Contains(FactorySources, k.Value) }) {
		f.From = map[string]string{}
		columns, tags = source.SortedKeys(factoryColumns), source.SortedKeys(factoryTags)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch key.Value {
		case "format", "formatting":
		case "columns":
			f.Columns = r.names(name.Value+".columns", value, columns)
		case "tags":
			f.Tags = r.names(name.Value+".tags", value, tags)
		default:
			if f.From != nil { // a key that it does not know is one that it does not read
				f.From[key.Value] = value.Value
				continue
			}
			r.fail(key, name.Value+"."+key.Value, "is not part of an entry",
				source.DidYouMean(key.Value, []string{"format", "columns", "tags"}))
		}
	}
	f.complete()
	return f
}

// names reads a mapping of known keys to names; null is not a name.
func (r *sftReader) names(at string, n *yaml.Node, known []string) map[string]string {
	if n.Kind != yaml.MappingNode {
		if n.Tag != "!!null" {
			r.fail(n, at, source.NodeKind(n)+", want a mapping of names", "")
		}
		return nil
	}
	out := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case !slices.Contains(known, key.Value):
			r.fail(key, at+"."+key.Value, "is not a key of it", source.Nearest(key.Value, known))
		case value.Kind != yaml.ScalarNode:
			r.fail(value, at+"."+key.Value, source.NodeKind(value)+", want a name", "")
		case value.Tag != "!!null":
			out[key.Value] = value.Value
		}
	}
	return out
}

// complete fills in what LoongForge, or LLaMA-Factory, takes where an entry says nothing.
func (f *SFTFormat) complete() {
	if f.From != nil {
		if f.Columns == nil {
			f.Columns = maps.Clone(factoryColumns)
		}
		if f.Tags == nil {
			f.Tags = maps.Clone(factoryTags)
		}
		return
	}
	if f.Format == "openai" {
		usual := map[string]string{"messages": "messages", "tools": "tools"}
		maps.Copy(usual, f.Columns)
		f.Columns = usual
	}
	if f.Columns != nil {
		return
	}
	switch f.Format {
	case "alpaca":
		f.Columns = SFTKnown["alpaca"].Columns
	case "sharegpt":
		f.Columns = map[string]string{"messages": "messages"}
	}
}
