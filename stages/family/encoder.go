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

var encoders = map[string]Tower{}

// RegisterTower enters a kind of vision tower, by configs.Vision.Kind.
func RegisterTower(kind string, t Tower) struct{} {
	if _, dup := encoders[kind]; dup {
		panic("family: vision tower " + kind + " registered twice")
	}
	encoders[kind] = t
	configs.RegisterTower(kind, t.Facts)
	for class, p := range t.Loong {
		p.Kind = kind
		loong.RegisterEncoder(class, p)
	}
	return struct{}{}
}

// joiner makes features of the decoder's width of a tower's rows, whose parameters begin with name.
type joiner interface {
	Forward(r *block.Rec, name string, x *grad.Value) *grad.Value
}

// projector joins features to a decoder.
type projector struct {
	build func(c configs.Model, t *block.Tower) joiner
	loong map[string]loong.Part // LoongForge's classes of it
}

// projectors are known by the name of configs.Vision.Projector.
var projectors = map[string]projector{}

func registerProjector(kind string, p projector) struct{} {
	if _, dup := projectors[kind]; dup {
		panic("family: projector " + kind + " registered twice")
	}
	projectors[kind] = p
	configs.RegisterProjector(kind)
	for class, part := range p.loong {
		part.Kind = kind
		loong.RegisterProjector(class, part)
	}
	return struct{}{}
}

var _ = registerProjector("merger", projector{
	loong: map[string]loong.Part{"MLPAdapterConfig": {Joins: true},
		"PatchMergerMLPAdapterConfig": {Joins: true}},
	build: func(c configs.Model, t *block.Tower) joiner {
		m := block.Merger{Tower: t, Out: c.Hidden, Eps: 1e-6, Act: acts["gelu"]}
		if change := encoders[c.Vision.Kind].Merger; change != nil {
			change(c, &m)
		}
		return &m
	}})

var _ = registerProjector("internvl", projector{
	loong: map[string]loong.Part{"InternMLPAdapterConfig": {Square: true, Eps: "1e-5"}},
	build: func(c configs.Model, t *block.Tower) joiner {
		return &block.Merger{Tower: t, Out: c.Hidden, Inner: c.Hidden, After: true, Eps: 1e-5,
			Act: acts[c.Vision.ProjAct]}
	}})

var _ = registerProjector("mlp", projector{
	build: func(c configs.Model, t *block.Tower) joiner {
		return &block.Merger{Tower: t, Out: c.Hidden, Inner: c.Hidden, None: true, Act: acts[c.Vision.ProjAct]}
	}})

// buildVision builds the vision part of a configuration, and the names of its tower's parameters.
func buildVision(c configs.Model) (*Vision, func(name string) Source) {
	e := encoders[c.Vision.Kind]
	v := e.Build(c)
	kind := c.Vision.Projector
	if kind == "" {
		kind = e.Projector
	}
	merger := projectors[kind].build(c, &v.Tower)
	v.Project = func(r *block.Rec, x *grad.Value) *grad.Value { return merger.Forward(r, "projector", x) }
	return v, e.Source(v)
}

// composed builds a family of a tower and a decoder: tower is the prefix of its parameters in a checkpoint,
// projector gives new beginnings to the names of the projector's, text maps the decoder's.
func composed(name string, c configs.Model, tower string, projector map[string]string,
	text func(string) Source) *Model {
	v, inner := buildVision(c)
	m := Compose(Decoder(name, spec(c)), v)
	m.alone = map[string][]func(string) Source{Encoder: {inner}, Foundation: {func(name string) Source {
		return Source{Name: name}
	}}}
	if other := encoders[c.Vision.Kind].Other; other != nil {
		m.alone[Encoder] = append(m.alone[Encoder], other(v))
	}
	if c.Text != "" {
		m.alone[Foundation] = []func(string) Source{all[c.Text].Build(c).Source}
	}
	m.Source = func(name string) Source {
		if strings.HasPrefix(name, visual+".") {
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

// textAt maps the names of a decoder in Llama's naming, whose body lies at a prefix.
func textAt(prefix string) func(string) Source {
	return func(name string) Source {
		if rest, ok := strings.CutPrefix(name, "model."); ok {
			name = prefix + rest
		}
		return Source{Name: name}
	}
}

// lnMerger names the parts of the patch merger of Qwen2-VL, Qwen2.5-VL and LLaVA-OneVision-1.5.
func lnMerger(prefix string) map[string]string {
	return map[string]string{"projector.norm": prefix + "ln_q", "projector.fc1": prefix + "mlp.0",
		"projector.fc2": prefix + "mlp.2"}
}

// fusedSource names the parameters of towers with one projection of query, key and value and a convolution
// over patches.
func fusedSource(v *Vision) func(string) Source {
	return func(name string) Source {
		joint, rows := fusedQKV(name, v.Tower.Hidden)
		s := Source{Name: strings.TrimPrefix(joint, visual+"."), Rows: rows}
		if name == visual+".patch_embed.proj.weight" {
			s.Tail = []int{v.Channels, v.Temporal, v.Patch, v.Patch}
		}
		return s
	}
}
