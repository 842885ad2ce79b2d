package configs

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// Vision is a vision tower with what joins it to the decoder. The keys are those of Hugging Face's
// vision_config, with one name where families differ: depth is num_hidden_layers, num_heads is
// num_attention_heads, merge is spatial_merge_size.
type Vision struct {
	Kind       string  `key:"kind" oneof:"towers" class:"fixed" doc:"Architecture of the vision tower; empty for a model of text alone."`
	Preset     string  `key:"preset" class:"fixed" doc:"Named tower, as siglip-so400m-14-384, that the model has where it says nothing else."`
	Depth      int     `key:"depth" default:"0" min:"0" max:"65536" class:"fixed" doc:"Layers of the tower."`
	Hidden     int     `key:"hidden_size" default:"0" min:"0" max:"1048576" class:"fixed" doc:"Width of the tower."`
	Inter      int     `key:"intermediate_size" default:"0" min:"0" max:"16777216" class:"fixed" doc:"Width of the tower's MLP."`
	Heads      int     `key:"num_heads" default:"0" min:"0" max:"65536" class:"fixed" doc:"Attention heads of the tower."`
	Patch      int     `key:"patch_size" default:"14" min:"1" max:"1024" class:"fixed" unit:"pixels" doc:"Side of a patch."`
	Temporal   int     `key:"temporal_patch_size" default:"1" min:"1" max:"64" class:"fixed" unit:"frames" doc:"Frames of a patch."`
	Channels   int     `key:"in_channels" default:"3" min:"1" max:"64" class:"fixed" doc:"Colour channels."`
	Merge      int     `key:"merge" default:"2" min:"1" max:"64" class:"fixed" doc:"Side, in patches, of the squares that become one feature."`
	ImageSize  int     `key:"image_size" default:"0" min:"0" class:"fixed" unit:"pixels" doc:"Side of the images or tiles that a tower with absolute positions takes."`
	Act        string  `key:"hidden_act" default:"gelu" oneof:"gelu|gelu_pytorch_tanh|quick_gelu|silu|relu" class:"fixed" doc:"Activation of the tower's MLP."`
	Eps        float64 `key:"layer_norm_eps" default:"1e-6" min:"0" class:"fixed" doc:"Term under the root of the tower's norms."`
	RMS        bool    `key:"rms_norm" default:"false" class:"fixed" doc:"RMS norms instead of layer norms."`
	QKVBias    bool    `key:"attention_bias" default:"true" class:"fixed" doc:"Query, key and value have biases."`
	Projector  string  `key:"projector" default:"" oneof:"projectors" class:"fixed" doc:"What joins features to the decoder; by default the family's own."`
	ProjAct    string  `key:"projector_hidden_act" default:"gelu" oneof:"gelu|gelu_pytorch_tanh|quick_gelu|silu|relu" class:"fixed" doc:"Activation of the projector."`
	ImageToken int     `key:"image_token_id" default:"-1" min:"-1" class:"fixed" doc:"Token that stands for a feature of an image."`
	VideoToken int     `key:"video_token_id" default:"-1" min:"-1" class:"fixed" doc:"Token that stands for a feature of a video."`
	StartToken int     `key:"vision_start_token_id" default:"-1" min:"-1" class:"fixed" doc:"Token before an image or video."`
	FeatLayer  int     `key:"vision_feature_layer" default:"0" min:"-65536" max:"65536" class:"fixed" doc:"Layer whose output the projector takes, counted from 1, or with -1 from the last; 0 means the last with the tower's closing norm."`
}

// TowerKind is what configurations know of an architecture of vision towers.
type TowerKind struct {
	Sized bool // takes images or tiles of one size
	Turns bool // has a two-axis rotary embedding
	// Has are the keys below vision that not all kinds have and this one reads: those of parts that Declare
	// entered as vision.KEY.
	Has []string
	// Check reports what no tower of the kind can be; key is one below vision. It may be nil.
	Check func(m Model, fault Report)
}

// towers are the architectures by Vision.Kind; stages/family/towers builds them.
var towers = map[string]TowerKind{}

// RegisterTower enters an architecture of vision towers.
func RegisterTower(kind string, t TowerKind) {
	if _, dup := towers[kind]; dup {
		panic("configs: tower " + kind + " registered twice")
	}
	towers[kind] = t
}

// projectors are the kinds by name, for Vision.Projector.
var projectors []string

// RegisterProjector enters a kind of projector.
func RegisterProjector(kind string) { projectors = append(projectors, kind) }

// Layers is how many of the tower's layers features pass.
func (v Vision) Layers() int {
	switch {
	case v.FeatLayer == 0:
		return v.Depth
	case v.FeatLayer < 0:
		return v.Depth + 1 + v.FeatLayer
	}
	return v.FeatLayer
}

// None says whether there is no tower.
func (v Vision) None() bool { return v.Kind == "" }

// check reports what no plan can run.
func (v *Vision) check(at faults, text *Model) {
	const p = "model.overrides.vision."
	v.checkOwn(at, text)
	if !v.checkFamily(at, text) {
		return
	}
	need := func(key string, value int) {
		if value == 0 {
			at.fault(p+key, "is not given", "")
		}
	}
	need("depth", v.Depth)
	need("hidden_size", v.Hidden)
	need("intermediate_size", v.Inter)
	need("num_heads", v.Heads)
	switch {
	case v.Heads == 0 || v.Hidden == 0:
	case v.Hidden%v.Heads != 0:
		at.fault(p+"num_heads", fmt.Sprintf("hidden_size = %d is not a multiple of %d", v.Hidden, v.Heads),
			fmt.Sprintf("try %d", nearestDivisor(v.Hidden, v.Heads)))
	case v.Hidden/v.Heads%4 != 0 && towers[v.Kind].Turns:
		at.fault(p+"num_heads", fmt.Sprintf("heads of width %d do not turn with two positions",
			v.Hidden/v.Heads), "choose a head width that is a multiple of 4")
	}
	if n := v.Layers(); v.Depth > 0 && (n < 1 || n > v.Depth) {
		at.fault(p+"vision_feature_layer", fmt.Sprintf("%d, but the tower has %d layers", v.FeatLayer,
			v.Depth), "try -1")
	}
	if towers[v.Kind].Sized {
		need("image_size", v.ImageSize)
	}
	if check := towers[v.Kind].Check; check != nil {
		check(*text, func(key, why, try string) { at.fault(p+key, why, try) })
	}
}

// checkOwn holds the keys of single kinds of towers to the model's: another kind's have no effect, and are
// refused unless they say what holds anyway.
func (v *Vision) checkOwn(at faults, m *Model) {
	for _, k := range table().keys {
		key, own := strings.CutPrefix(k.Name, overrides+".vision.")
		if !own || k.part == "" || slices.Contains(towers[v.Kind].Has, key) {
			continue
		}
		if have := formatValue(k.field(nil, m)); have != k.format(k.Default) {
			at.fault(k.Name, fmt.Sprintf("%s, but %s does not read it", have, source.Quoted(v.Kind)),
				"change vision.kind or leave "+key+" out")
		}
	}
}

// checkFamily holds the tower to the model's family, and reports whether there is one to check.
func (v *Vision) checkFamily(at faults, text *Model) bool {
	const p = "model.overrides."
	c, composed := hf.ComposedFamilies[text.ModelType]
	own := strings.Trim(c.Preset["kind"], `"`)
	switch {
	case v.None() && composed:
		at.fault(p+"vision.kind", "is not given", source.OneOf(towerKinds()))
		return false
	case v.None():
		return false
	case text.ModelType == "":
		return false // reported
	case !composed:
		at.fault(p+"model_type", fmt.Sprintf("%s has no vision tower, but vision.kind = %s", text.ModelType,
			v.Kind), "try model_type: vlm with text_model_type: "+text.ModelType)
	case len(c.Kinds) > 0 && hf.Tower(c, v.Kind) == "":
		at.fault(p+"vision.kind", fmt.Sprintf("%s, but %s has another tower", v.Kind, text.ModelType),
			"try model_type: vlm for a pair of your own")
	case own != "" && own != v.Kind:
		at.fault(p+"vision.kind", fmt.Sprintf("%s, but %s has %s", v.Kind, text.ModelType, own),
			"try model_type: vlm for a pair of your own")
	case c.Preset["merge"] != "" && c.Preset["merge"] != fmt.Sprint(v.Merge):
		at.fault(p+"vision.merge", fmt.Sprintf("%d, but %s has %s", v.Merge, text.ModelType, c.Preset["merge"]), "")
	case (own != "" || len(c.Kinds) > 0) && v.Projector != "" &&
		v.Projector != strings.Trim(cmp.Or(c.Preset["projector"], "merger"), `"`):
		at.fault(p+"vision.projector", fmt.Sprintf("%s is not that of %s", v.Projector, text.ModelType),
			"try model_type: vlm for a pair of your own")
	case c.Text == "" && text.Text == "":
		at.fault(p+"text_model_type", "is not given", source.OneOf(hf.Behind()))
	case c.Text != "" && text.Text != "" && text.Text != c.Text:
		at.fault(p+"text_model_type", fmt.Sprintf("%s, but %s has %s", text.Text, text.ModelType, c.Text),
			"try model_type: vlm for a pair of your own")
	}
	return true
}

func towerKinds() []string { return source.SortedKeys(towers) }

// keys is the tower as config.json of a pair of one's own has it: our keys that its kind reads, each with its
// value; empty words and lists are left out.
func (v *Vision) keys(m *Model) map[string]any {
	out := map[string]any{}
	for _, k := range table().keys {
		key, own := strings.CutPrefix(k.Name, overrides+".vision.")
		if !own || k.part != "" && !slices.Contains(towers[v.Kind].Has, key) {
			continue
		}
		field := k.field(nil, m)
		if empty := field.Kind() == reflect.String || field.Kind() == reflect.Slice; !empty || !field.IsZero() {
			out[key] = field.Interface()
		}
	}
	return out
}
