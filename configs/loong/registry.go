package loong

import (
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/configs/hydra"
	"github.com/lfactor/lfactor/configs/source"
)

// Decoder is a class of language models: the last word of _target_.
type Decoder struct {
	Class string
	// name of the convert_file of models whose weights have other names than the class's usual ones, "" for any other
	Convert string
	Mixed   bool   // of the class's models those with num_experts
	Family  string // our model_type
	// Preset are our keys that the class has without saying so
	Preset map[string]string
	Alone  bool // it does not stand behind an encoder
	// Tokens are our keys of token ids of images in the vocabulary, for a pair of one's own; nil if there are none.
	Tokens map[string]string
	// Keys are names that the class gives its own meaning: keys of ours, "" for those without one; Only are
	// values, as text, of keys that it has one way alone.
	Keys map[string]string
	Only map[string][]string
	// Derive gives keys of ours that follow from others of a file, by the text of a key; nil for none
	Derive func(text func(name ...string) string) map[string]string
	// Dynamic is the factor of the dynamic rotary embedding by the base, where the class has one; nil for none.
	Dynamic func(base string) string
}

// decoders are the registered ones by class.
var decoders = map[string][]Decoder{}

// RegisterDecoder enters a class of language models.
func RegisterDecoder(d Decoder) {
	for _, other := range decoders[d.Class] {
		if other.Convert == d.Convert && other.Mixed == d.Mixed {
			panic("loong: class " + d.Class + " registered twice")
		}
	}
	decoders[d.Class] = append(decoders[d.Class], d)
}

// decoderOf is the decoder that a file's class, convert_file and num_experts stand for.
func decoderOf(class string, n *hydra.Node) (d Decoder, ok bool) {
	source.Filled()
	convert, experts := n.Text("convert_file"), n.Text("num_experts")
	mixed := experts != "" && experts != "null"
	for _, d := range decoders[class] {
		if d.Convert != "" && d.Convert == filepath.Base(convert) {
			return d, true
		}
	}
	for _, want := range []bool{mixed, !mixed} {
		i := slices.IndexFunc(decoders[class], func(d Decoder) bool {
			return d.Convert == "" && d.Mixed == want
		})
		if i >= 0 {
			return decoders[class][i], true
		}
	}
	return Decoder{}, false
}

func classNames() []string {
	source.Filled()
	return source.SortedKeys(decoders)
}

// Composition is a family of composed models: what LoongForge calls it, and what it is made of.
type Composition struct {
	Name      string // model.model_type
	Family    string // our model_type
	Encoder   string // kinds of our vision towers and projectors
	Projector string
	Decoders  []string                     // families
	Families  map[string]string            // our model_type by decoder where it is another
	Tokens    map[string]map[string]string // by decoder, "" for any: our keys of token ids
	Sections  string                       // of M-RoPE, "" for plain positions
	Weave     bool                         // the sections are dealt out in turns
	Default   bool                         // the rotary type beside the sections is default
	// values of position_idx_func that stand for its positions; nil is position_ids
	PositionFunc []string
	LossFunc     string // value of loss_func, "" for default
	// train.loss_weight of fine-tuning where a script does not say, "" for the usual one
	LossWeight string
}

// compositions are the registered ones by name.
var compositions = map[string]Composition{}

// RegisterComposition enters a family of composed models.
func RegisterComposition(c Composition) {
	if _, dup := compositions[c.Name]; dup {
		panic("loong: " + c.Name + " registered twice")
	}
	compositions[c.Name] = c
}

// LossWeight is the train.loss_weight with which LoongForge fine-tunes models of a family, "" for the usual one.
func LossWeight(family string) string {
	for _, name := range source.SortedKeys(compositions) {
		if compositions[name].Family == family {
			return compositions[name].LossWeight
		}
	}
	return ""
}

// Part is a class of image encoders or projectors.
type Part struct {
	Kind   string            // of our vision tower, or of our projector
	Preset map[string]string // our keys of the tower that the files do not say
	Gated  bool              // the encoder's MLP is gated
	RMS    bool              // RMS norms
	Norms  bool              // either norm
	Sized  bool              // images or tiles have one size, image_size
	// values of position_embedding_type besides none that stand for the tower's own positions
	Positions []string
	Free      bool // files say whether query, key and value have biases and norms
	// term under the root of a patch merger's norm behind the encoder, "" for 1e-6
	MergerEps string
	Joins     bool   // the projector joins patches: its inner width is theirs
	Square    bool   // the projector's inner width is its outer one
	Eps       string // of the projector's norm, "" for the encoder's MergerEps
	// values, as text, of further keys that the class has: others are refused
	Only map[string][]string
	// names that the class gives another meaning than most: our keys of the tower, "" for those without one
	Keys map[string]string
	Why  string // the reason why the class is refused
}

// RegisterEncoder enters a class of image encoders.
func RegisterEncoder(class string, p Part) { registerPart(encoders, class, p) }

// RegisterProjector enters a class of image projectors.
func RegisterProjector(class string, p Part) { registerPart(projectors, class, p) }

func registerPart(all map[string]*Part, class string, p Part) {
	if all[class] != nil {
		panic("loong: class " + class + " registered twice")
	}
	all[class] = &p
}

// encoders are the classes of image encoders; those that are here are refused.
var encoders = map[string]*Part{
	"MiniCPMV46VisionConfig": {Why: "MiniCPM-V's merger inside the tower is not built"},
}

// projectors are the classes of image projectors; those that are here are refused.
var projectors = map[string]*Part{
	"MiniCPMV46MergerConfig": {Why: "MiniCPM-V's merger is not built"},
}
