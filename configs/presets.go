package configs

import (
	"embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

//go:embed towers/*.yaml
var towerFiles embed.FS

// Towers lists the vision towers that have a name, for model.overrides.vision.preset.
func Towers() (names []string) {
	files, err := towerFiles.ReadDir("towers")
	if err != nil {
		panic(err) // embedded
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return
}

// embedded parses a file that is part of the program.
func embedded(files embed.FS, file string) *yaml.Node {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err) // it was listed
	}
	root, err := source.ParseYAML(file, text)
	if err != nil {
		panic(err) // a test loads them all
	}
	return root
}

// presets enters what named towers and decoders consist of, below everything else that is given: a pair of
// one's own needs no numbers then.
func (l *loader) presets() {
	if name, o := l.preset(overrides + ".vision.preset"); name != "" {
		l.towerPreset(name, o)
	}
	if name, o := l.preset(overrides + ".text_preset"); name != "" {
		l.textPreset(name, o)
	}
	l.familyConstants()
}

// familyConstants enters what the decoder's family has anyway, and what it has where nothing else is said.
func (l *loader) familyConstants() {
	family, _ := l.preset(overrides + ".text_model_type")
	if family == "" {
		family, _ = l.preset(overrides + ".model_type")
	}
	own := maps.Clone(hf.Families()[family].Fixed)
	if own == nil {
		own = map[string]string{}
	}
	maps.Copy(own, hf.Families()[family].Usual)
	for _, key := range source.SortedKeys(own) {
		node, err := source.ParseValue(own[key])
		if err != nil {
			panic(fmt.Sprintf("configs: family %s: %s: %v", family, key, err))
		}
		l.under(key, setting{node: node, origin: Origin{Layer: source.LayerModel, File: "family " + family}})
	}
}

// preset is the strongest value of a key.
func (l *loader) preset(key string) (string, Origin) {
	given := slices.Clone(l.c.given[key])
	slices.SortStableFunc(given, func(a, b setting) int { return int(a.origin.Layer - b.origin.Layer) })
	if len(given) == 0 {
		return "", Origin{}
	}
	last := given[len(given)-1]
	return last.node.Value, last.origin
}

// towerPreset takes the settings of a published vision tower below those that are given.
func (l *loader) towerPreset(name string, o Origin) {
	if !slices.Contains(Towers(), name) {
		l.fail(o, overrides+".vision.preset", "no vision tower is called "+source.Quoted(name),
			source.Nearest(name, Towers()))
		return
	}
	file := path.Join("towers", name+".yaml")
	root := embedded(towerFiles, file)
	skip := []string{"source", "parameters", "of"}
	// that of a published model, without what the model makes of it
	if of := source.Lookup(root, "of"); of != nil {
		file = path.Join("models", of.Value+".yaml")
		root = source.Lookup(embedded(modelFiles, file), "vision")
		skip = []string{"projector", "projector_hidden_act", "image_token_id", "video_token_id",
			"vision_start_token_id", "tokens_per_second"}
	}
	l.below(root, "vision.", "configs/"+file, skip)
}

// textPreset enters the decoder of a published model.
func (l *loader) textPreset(name string, o Origin) {
	key := overrides + ".text_preset"
	var dense []string
	for _, n := range Models() {
		if source.Lookup(embedded(modelFiles, path.Join("models", n+".yaml")), "vision") == nil {
			dense = append(dense, n)
		}
	}
	if ours, ok := loongNames()[strings.ToLower(name)]; ok {
		name = ours
	}
	if !slices.Contains(dense, name) {
		try := source.DidYouMean(name, dense)
		if try == "" {
			try = "lfactor config models lists them"
		}
		l.fail(o, key, "no published decoder is called "+source.Quoted(name), try)
		return
	}
	file := path.Join("models", name+".yaml")
	root := embedded(modelFiles, file)
	l.below(root, "", "configs/"+file, []string{"source", "names", "parameters", "active_parameters",
		"architectures", "model_type"})
	if kind := source.Lookup(root, "model_type"); kind != nil {
		l.under("text_model_type", setting{node: kind, origin: Origin{Layer: source.LayerModel,
			File: "configs/" + file, Line: kind.Line}})
	}
}

// below enters keys of Model as the weakest that are given.
func (l *loader) below(n *yaml.Node, prefix, file string, skip []string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; !slices.Contains(skip, key.Value) {
			l.under(prefix+key.Value, setting{node: n.Content[i+1], origin: Origin{Layer: source.LayerModel,
				File: file, Line: key.Line}})
		}
	}
}

// under enters a setting below all that are given for the key.
func (l *loader) under(name string, s setting) {
	s.key = table().byName[overrides+"."+name]
	if s.key == nil {
		panic("configs: " + s.origin.File + ": " + name + " is not a key") // a test loads them all
	}
	l.c.given[s.key.Name] = append([]setting{s}, l.c.given[s.key.Name]...)
}
