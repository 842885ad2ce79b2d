package configs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// clipFlags are those of LoongForge's models of diffusion: the size of clips, and the part of the noise
// levels that is trained. They are entered together, since several say one key of ours.
var clipFlags = map[string]bool{"num-latent-frames": true, "max-latent-height": true, "max-latent-width": true,
	"max-text-length": true, "max-timestep-boundary": true, "min-timestep-boundary": true}

// clipShifts are the shifts of noise levels that LoongForge trains its models of diffusion with (its
// flow-matching scheduler; Qwen-Image's is exp(0.8)), and captions are the rows that it pads captions to.
var clipShifts = map[string]float64{"WanTransformer3DModel": 5, "QwenImageTransformer2DModel": math.Exp(0.8)}

// clipFlag notes one.
func (l *loader) clipFlag(name string, values []string, o Origin) {
	v, err := strconv.ParseFloat(strings.Join(values, " "), 64)
	if err != nil || v < 0 || !strings.HasSuffix(name, "-boundary") && v != math.Trunc(v) {
		l.fail(o, "", source.Quoted(strings.Join(values, " "))+", want a number", "")
		return
	}
	if strings.HasSuffix(name, "-boundary") && v > 1 {
		l.fail(o, "", fmt.Sprintf("%g, want a share of the noise levels, from 0 to 1", v), "")
		return
	}
	if l.clips == nil {
		l.clips = map[string]float64{}
	}
	l.clips[name] = v
}

// clip enters what the flags mean for the model: frames are those of clips in pixels, whatever the flags are called.
func (l *loader) clip() {
	if len(l.clips) == 0 {
		return
	}
	model := l.modelType()
	shift := clipShifts[model]
	if shift == 0 {
		for _, name := range source.SortedKeys(l.clips) {
			l.fail(Origin{Layer: source.LayerFlag, Text: "--" + name}, "",
				cmp.Or(model, "the model")+" is no model of diffusion that LoongForge has", "leave it out")
		}
		return
	}
	set := func(key, value, flags string) {
		node, err := source.ParseValue(value)
		if err != nil {
			panic("configs: " + key + " from flags: " + err.Error())
		}
		given := l.c.given[key] // a key that is given by name wins, whatever its place among the arguments
		at := slices.IndexFunc(given, func(s setting) bool { return s.origin.Layer >= source.LayerOverride })
		if at < 0 {
			at = len(given)
		}
		l.c.given[key] = slices.Insert(given, at,
			setting{table().byName[key], node, Origin{Layer: source.LayerOverride, Text: flags}})
	}
	f, h, w := l.clips["num-latent-frames"], l.clips["max-latent-height"], l.clips["max-latent-width"]
	switch {
	case h > 0 && w > 0:
		set("diffusion.sizes", fmt.Sprintf("[%dx%dx%d]", int(max(f, 1)), int(h), int(w)),
			"--num-latent-frames, --max-latent-height, --max-latent-width")
	case f+h+w > 0:
		l.fail(Origin{Layer: source.LayerFlag, Text: "--num-latent-frames"}, "diffusion.sizes",
			"a size has --max-latent-height and --max-latent-width as well", "give all three")
	}
	if n, ok := l.clips["max-text-length"]; ok && model == "WanTransformer3DModel" {
		set(overrides+".text_rows", fmt.Sprint(int(n)), "--max-text-length")
	} else if ok {
		l.c.Notices = append(l.c.Notices, fmt.Sprintf("--max-text-length %d: captions of %s are cut where its "+
			"pipeline of diffusers cuts them", int(n), model))
	}
	l.levels(shift, set)
}

// modelType is the model's before its file is entered: that of a LoongForge file, a published name or a
// folder; "" where none says it.
func (l *loader) modelType() string {
	if t, _ := l.preset(overrides + ".model_type"); t != "" {
		return t
	}
	if name, _ := l.preset("model.name"); name != "" {
		if own := loongNames()[strings.ToLower(name)]; own != "" {
			name = own
		}
		if !slices.Contains(Models(), name) {
			return "" // what reads the model says so
		}
		return source.Lookup(embedded(modelFiles, path.Join("models", name+".yaml")), "model_type").Value
	}
	var file struct {
		Class string `json:"_class_name"`
	}
	dir, _ := l.preset("model.path")
	text, err := os.ReadFile(filepath.Join(hf.DenoiserDir(dir), "config.json"))
	if dir == "" || err != nil || json.Unmarshal(text, &file) != nil {
		return ""
	}
	return file.Class
}

// levels enters LoongForge's noise levels: a table with a shift, weighted by a bell, of which the flags name
// a part by places in it, the noisiest first.
func (l *loader) levels(shift float64, set func(key, value, flags string)) {
	const flags = "--min-timestep-boundary, --max-timestep-boundary"
	at := func(share float64) string {
		u := 1 - share
		return strconv.FormatFloat(shift*u/(1+(shift-1)*u), 'g', 6, 64)
	}
	set("diffusion.shift", strconv.FormatFloat(shift, 'g', -1, 64), "LoongForge's noise levels")
	set("diffusion.weight", "bell", "LoongForge's weights of noise levels")
	from, to := l.clips["min-timestep-boundary"], 1.0
	if v, ok := l.clips["max-timestep-boundary"]; ok {
		to = v
	}
	if from >= to {
		l.fail(Origin{Layer: source.LayerFlag, Text: "--min-timestep-boundary"}, "",
			fmt.Sprintf("%g leaves nothing below --max-timestep-boundary %g", from, to), "")
		return
	}
	if to < 1 {
		set("diffusion.noise_from", at(to), flags)
	}
	if from > 0 {
		set("diffusion.noise_to", at(from), flags)
	}
}
