package family

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// Tower is a kind of vision tower.
type Tower struct {
	Facts configs.TowerKind
	Loong map[string]loong.Part // LoongForge's classes of the tower
	Build func(c configs.Model) *Vision
	// Source maps a logical name of the tower to its own checkpoint's, without a prefix.
	Source func(v *Vision) func(name string) Source
	// Other is a second layout of the tower's own checkpoints, nil for none.
	Other     func(v *Vision) func(name string) Source
	Projector string // by default
	// what is different in a patch merger behind the tower; nil for nothing
	Merger func(c configs.Model, m *block.Merger)
}

// Encoders are the architectures of towers by configs.Vision.Kind.
var Encoders = map[string]Tower{}

// RegisterTower enters a kind of vision tower, by configs.Vision.Kind.
func RegisterTower(kind string, t Tower) struct{} {
	if _, dup := Encoders[kind]; dup {
		panic("family: vision tower " + kind + " registered twice")
	}
	Encoders[kind] = t
	configs.RegisterTower(kind, t.Facts)
	for class, p := range t.Loong {
		p.Kind = kind
		loong.RegisterEncoder(class, p)
	}
	return struct{}{}
}

// Joiner makes features of the decoder's width of a tower's rows, whose parameters begin with name.
type Joiner interface {
	Forward(r *block.Rec, name string, x *grad.Value) *grad.Value
}

// ProjectorKind joins features to a decoder.
type ProjectorKind struct {
	Build func(c configs.Model, t *block.Tower) Joiner
	Loong map[string]loong.Part // LoongForge's classes of it
}

// Projectors are known by the name of configs.Vision.Projector.
var Projectors = map[string]ProjectorKind{}

// RegisterProjector enters a kind of projector by a name of its own.
func RegisterProjector(kind string, p ProjectorKind) struct{} {
	if _, dup := Projectors[kind]; dup {
		panic("family: projector " + kind + " registered twice")
	}
	Projectors[kind] = p
	configs.RegisterProjector(kind)
	for class, part := range p.Loong {
		part.Kind = kind
		loong.RegisterProjector(class, part)
	}
	return struct{}{}
}

var _ = RegisterProjector("merger", ProjectorKind{Loong: map[string]loong.Part{"MLPAdapterConfig": {Joins: true},
	"PatchMergerMLPAdapterConfig": {Joins: true}}, Build: func(c configs.Model, t *block.Tower) Joiner {
	m := block.Merger{Tower: t, Out: c.Hidden, Eps: 1e-6, Act: Acts["gelu"]}
	if change := Encoders[c.Vision.Kind].Merger; change != nil {
		change(c, &m)
	}
	return &m
}})

var _ = RegisterProjector("internvl", ProjectorKind{
	Loong: map[string]loong.Part{"InternMLPAdapterConfig": {Square: true, Eps: "1e-5"}},
	Build: func(c configs.Model, t *block.Tower) Joiner {
		return &block.Merger{Tower: t, Out: c.Hidden, Inner: c.Hidden, After: true, Eps: 1e-5,
			Act: Acts[c.Vision.ProjAct]}
	}})

var _ = RegisterProjector("mlp", ProjectorKind{Build: func(c configs.Model, t *block.Tower) Joiner {
	return &block.Merger{Tower: t, Out: c.Hidden, Inner: c.Hidden, None: true, Act: Acts[c.Vision.ProjAct]}
}})

// buildVision builds the vision part of a configuration, and the names of its tower's parameters.
func buildVision(c configs.Model) (*Vision, func(name string) Source) {
	e := Encoders[c.Vision.Kind]
	v := e.Build(c)
	kind := c.Vision.Projector
	if kind == "" {
		kind = e.Projector
	}
	merger := Projectors[kind].Build(c, &v.Tower)
	v.Project = func(r *block.Rec, x *grad.Value) *grad.Value { return merger.Forward(r, "projector", x) }
	return v, e.Source(v)
}

// ComposedModel builds a family of a tower and a decoder: tower is the prefix of its parameters in a
// checkpoint, projector gives new beginnings to the names of the projector's, text maps the decoder's.
func ComposedModel(name string, c configs.Model, tower string, projector map[string]string,
	text func(string) Source) *Model {
	return ComposedOf(name, c, SpecOf(c), tower, projector, text)
}

// ComposedOf is ComposedModel of a decoder that is made otherwise than its family's.
func ComposedOf(name string, c configs.Model, s Spec, tower string, projector map[string]string,
	text func(string) Source) *Model {
	v, inner := buildVision(c)
	m := Compose(Decoder(name, s), v)
	m.Alone = map[string][]func(string) Source{Encoder: {inner}, Foundation: {func(name string) Source {
		return Source{Name: name}
	}}}
	if other := Encoders[c.Vision.Kind].Other; other != nil {
		m.Alone[Encoder] = append(m.Alone[Encoder], other(v))
	}
	if c.Text != "" {
		decoder, _ := of(c, c.Text)
		m.Alone[Foundation] = []func(string) Source{decoder.Build(c).Source}
	}
	m.Source = func(name string) Source {
		if strings.HasPrefix(name, VisualName+".") {
			s := inner(name)
			s.Name = tower + s.Name
			return s
		}
		if strings.HasPrefix(name, "projector.") {
			for from, to := range projector {
				if rest, ok := strings.CutPrefix(name, from); ok {
					return Source{Name: to + rest}
				}
			}
		}
		return text(name)
	}
	return m
}

// TextAt maps the names of a decoder in Llama's naming, whose body lies at a prefix.
func TextAt(prefix string) func(string) Source {
	return func(name string) Source {
		if rest, ok := strings.CutPrefix(name, "model."); ok {
			name = prefix + rest
		}
		return Source{Name: name}
	}
}

// NormedMerger names the parts of the patch merger of Qwen2-VL, Qwen2.5-VL and LLaVA-OneVision-1.5.
func NormedMerger(prefix string) map[string]string {
	return map[string]string{"projector.norm": prefix + "ln_q", "projector.fc1": prefix + "mlp.0",
		"projector.fc2": prefix + "mlp.2"}
}

// FusedSource names the parameters of towers with one projection of query, key and value and a
// convolution over patches.
func FusedSource(v *Vision) func(string) Source {
	return func(name string) Source {
		joint, rows := FusedQKV(name, v.Tower.Hidden)
		s := Source{Name: strings.TrimPrefix(joint, VisualName+"."), Rows: rows}
		if name == VisualName+".patch_embed.proj.weight" {
			s.Tail = []int{v.Channels, v.Temporal, v.Patch, v.Patch}
		}
		return s
	}
}
