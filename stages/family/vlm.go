package family

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// The components of a composed model.
const (
	Encoder    = "image_encoder"
	Projector  = "image_projector"
	Foundation = "foundation"
)

// Vision is the part of a composed model before its decoder: a tower and a projector, whose features take
// the places of image tokens.
type Vision struct {
	Tower   block.Tower
	Project func(r *block.Rec, x *grad.Value) *grad.Value // rows of the tower to features [p/join width]
	// of tower layers whose features the decoder's first layers add
	Deepstack map[int]block.Merger
	Listed    []int // these layers in the order of the configuration, which their parameters are numbered by
	// patches along a side of the square that becomes one feature
	Merge    int
	Patch    int // pixels along a side of a patch
	Temporal int // frames of a patch
	Channels int
	Window   int  // features along a side of a window, 0 for none
	Tile     int  // pixels along a side of tiles of one size, 0 for images of any
	Masked   bool // checkpoints have a token for masked patches, which no feature passes
	Pooling  bool // checkpoints have a pooling head, which no feature passes
	// positions in time a second of video, 0 to count rows of the grid
	PerSecond float64
	// first value of the vectors that scale branches
	FirstScale float64
	Config     configs.Vision
}

// FeaturePort is the port of the features; DeepstackPort of those that decoder layer i adds.
const FeaturePort = "features"

// DeepstackPort is the port of the features that decoder layer i adds.
func DeepstackPort(i int) string { return fmt.Sprintf("deepstack.%d", i) }

// VisualName begins the names of a tower's parameters.
const VisualName = "visual"

// Compose puts a vision tower before a decoder: the features take the places of the embedding whose index in the
// microbatch's "vis.places" [rows] is not negative, and deepstack features are added after the decoder's first layers.
func Compose(m *Model, v *Vision) *Model {
	m.Vision, m.Modalities = v, append(m.Modalities, images{v, &m.Spec})
	rows := func(s block.Shape) int { return s.Dim(block.Patches) / v.Tower.Join }
	features := Port{Width: m.Spec.Hidden, Rows: rows, Of: block.Patches, Whole: true}
	var blocks []Block
	blocks = append(blocks, Block{Name: VisualName + ".patch_embed", Component: Encoder, Of: block.Patches,
		Gives: []string{"v"}, Weight: 0.1,
		Record: func(r *block.Rec, env map[string]*grad.Value) { env["v"] = v.Tower.Embed(r, VisualName) }})
	tower := v.Tower
	share := float64(tower.Hidden*tower.Hidden*4+tower.Hidden*tower.Inter*2) / float64(2*m.Spec.layer(0).Size())
	taps := 0
	for i := range tower.Layers {
		b := Block{Name: fmt.Sprintf("%s.blocks.%d", VisualName, i), Component: Encoder, Of: block.Patches,
			Takes: []string{"v"}, Gives: []string{"v"}, Recompute: true, Weight: share}
		merger, tapped := v.Deepstack[i]
		k := taps
		if tapped {
			b.Gives = append(b.Gives, DeepstackPort(k))
			m.Ports[DeepstackPort(k)] = features
			taps++
		}
		b.Record = func(r *block.Rec, env map[string]*grad.Value) {
			env["v"] = tower.Layer(r, VisualName, i, env["v"])
			if tapped {
				env[DeepstackPort(k)] = merger.Forward(r,
					fmt.Sprintf("%s.deepstack.%d", VisualName, v.merger(i, k)), env["v"])
			}
		}
		blocks = append(blocks, b)
	}
	blocks = append(blocks, Block{Name: "projector", Component: Projector, Of: block.Patches,
		Takes: []string{"v"}, Gives: []string{FeaturePort}, Recompute: true, Weight: 0.2,
		Record: func(r *block.Rec, env map[string]*grad.Value) {
			env[FeaturePort] = v.Project(r, tower.Last(r, VisualName, env["v"]))
		}})
	m.Ports["v"], m.Ports[FeaturePort] = Port{Width: tower.Hidden, Rows: tower.Rows, Of: block.Patches}, features
	for i, b := range m.Blocks {
		switch {
		case b.Name == EmbedName:
			b = v.embed(m, b)
		case taps > 0 && i <= taps:
			b = addFeatures(b, i-1)
		case i == len(m.Blocks)-1 && m.Spec.MTP > 0:
			b.Takes = append(slices.Clone(b.Takes), FeaturePort)
		}
		blocks = append(blocks, b)
	}
	m.Blocks = blocks
	return m
}

// merger is the number of the parameters that join the features of layer i, of which k layers come before:
// its place in the list of the configuration, which need not be in order.
func (v *Vision) merger(i, k int) int {
	if at := slices.Index(v.Listed, i); at >= 0 {
		return at
	}
	return k
}

// embed lets features take their places in the embedding: ids there are -1, whose embedding is zero.
func (v *Vision) embed(m *Model, b Block) Block {
	inner := b.Record
	b.Takes = append(b.Takes, FeaturePort)
	b.Record = func(r *block.Rec, env map[string]*grad.Value) {
		inner(r, env)
		if r.Shape.Dim(block.Patches) > 0 {
			features := env[FeaturePort]
			if f := m.Spec.EmbedFactor(features.DType); f != 0 && f != 1 && !m.Spec.EmbedRounds {
				features = r.T.Scale(features, f) // Granite scales what enters its layers, not what it looks up
			}
			env["x"] = place(r, env["x"], features, placesOf(0))
		}
	}
	return b
}

// addFeatures lets a block of the decoder add the encoder's k-th set of deep features at the places
// of the image after its own work. Microbatches without images leave it as it is.
func addFeatures(b Block, k int) Block {
	inner := b.Record
	b.Takes = append(b.Takes, DeepstackPort(k))
	b.Record = func(r *block.Rec, env map[string]*grad.Value) {
		inner(r, env)
		if r.Shape.Dim(block.Patches) > 0 {
			env["x"] = place(r, env["x"], env[DeepstackPort(k)], placesOf(0))
		}
	}
	return b
}

// place adds features to the rows of x that are theirs by the tensor places.
func place(r *block.Rec, x, features *grad.Value, places string) *grad.Value {
	at := r.T.Data(places, tensor.I32, r.Shape.Rows)
	return r.T.Place("residual", r.T.Add(x, r.T.Place("residual", r.T.Take(features, at))))
}

// Component is that of a parameter.
func (m *Model) Component(param string) string {
	for _, p := range m.Parts {
		if strings.HasPrefix(param, p.Prefix) {
			return p.Component
		}
	}
	switch {
	case m.Vision == nil:
	case strings.HasPrefix(param, VisualName+"."):
		return Encoder
	case strings.HasPrefix(param, "projector."):
		return Projector
	}
	return Foundation
}

// Acts are the activations by Hugging Face's names.
var Acts = map[string]int{"gelu": kernels.GELU, "gelu_pytorch_tanh": kernels.GELUTanh,
	"quick_gelu": kernels.QuickGELU, "silu": kernels.SiLU, "relu": kernels.ReLU, "relu2": block.ReLU2}

// BaseTower is what all vision towers share.
func BaseTower(c configs.Vision) block.Tower {
	return block.Tower{Layers: c.Layers(), Hidden: c.Hidden, Inter: c.Inter, Heads: c.Heads,
		PatchDim: c.Channels * c.Temporal * c.Patch * c.Patch,
		Join:     c.Merge * c.Merge, RMS: c.RMS, Eps: c.Eps, Act: Acts[c.Act], QKVBias: c.QKVBias}
}

// NewVision puts a tower in front of a decoder.
func NewVision(c configs.Vision, t block.Tower) *Vision {
	return &Vision{Tower: t, Merge: c.Merge, Patch: c.Patch, Temporal: c.Temporal, Channels: c.Channels, Config: c}
}

// FusedQKV are the rows of query, key and value in a joint projection of towers of width d.
func FusedQKV(name string, d int) (joint string, rows [][2]int) {
	for i, p := range []string{".q_proj.", ".k_proj.", ".v_proj."} {
		if strings.HasPrefix(name, VisualName+".blocks.") && strings.Contains(name, p) {
			return strings.Replace(name, p, ".qkv.", 1), [][2]int{{i * d, (i + 1) * d}}
		}
	}
	return name, nil
}
