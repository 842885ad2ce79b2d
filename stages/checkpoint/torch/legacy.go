package torch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// The older form of Megatron's checkpoints: a folder for each rank of tensor, pipeline and expert
// parallelism, with the rank's own part of the model in a file of torch.save. Parts are put together as one
// directory of torch.distributed.checkpoint would have them.

// rankDir is the name of a rank's folder: tensor, pipeline, expert.
var rankDir = regexp.MustCompile(`^mp_rank_(\d{2,3})(?:_(\d{3}))?(?:_(\d{3}))?$`)

const rankFile = "model_optim_rng.pt"

// ranksMax bounds the folders of one checkpoint.
const ranksMax = 1 << 16

// legacyRank is a rank's place.
type legacyRank struct{ tp, pp, ep int }

// isLegacy reports whether a directory has folders of ranks.
func isLegacy(dir string) bool {
	found, err := filepath.Glob(filepath.Join(dir, "mp_rank_*", rankFile))
	return err == nil && len(found) > 0
}

// legacy puts the parts of ranks together.
type legacy struct {
	d       *DCP
	ranks   map[legacyRank]*archive
	files   map[legacyRank]*os.File
	size    legacyRank // of the grid
	experts int        // of a layer on each rank
	kind    string     // of what an optimizer keeps, "" for the weights
	g       *gpt
	want    map[string][]int // shapes of whole tensors, of those that there are
	// of what an optimizer keeps: how often it has changed the weights
	updates float64
}

// openLegacy opens all ranks of a directory, which have to be a whole grid.
func openLegacy(g *gpt, dir string) (*DCP, error) {
	l, err := openLegacyKind(g, dir, "")
	if err != nil {
		return nil, err
	}
	return l.d, nil
}

// openLegacyKind opens the weights, or a kind of what the optimizer keeps of each.
func openLegacyKind(g *gpt, dir, kind string) (*legacy, error) {
	l := &legacy{kind: kind, g: g, want: map[string][]int{}, d: &DCP{dir: dir,
		said: filepath.Join(dir, "mp_rank_*", rankFile), tensors: map[string]*sharded{}, files: map[string]*os.File{}},
		ranks: map[legacyRank]*archive{}, files: map[legacyRank]*os.File{}}
	for _, c := range turned(g.links(false, func(string) bool { return false })) {
		l.want[c.name] = c.shape()
	}
	if err := l.open(dir); err != nil {
		return nil, errors.Join(err, l.d.Close())
	}
	return l, nil
}

func (l *legacy) open(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		m := rankDir.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		n := [3]int{}
		for i := range n {
			if m[i+1] != "" {
				n[i], _ = strconv.Atoi(m[i+1]) // digits, of the expression
			}
		}
		r := legacyRank{n[0], n[1], n[2]}
		l.size = legacyRank{max(l.size.tp, r.tp+1), max(l.size.pp, r.pp+1), max(l.size.ep, r.ep+1)}
		if err := l.rank(r, filepath.Join(dir, e.Name(), rankFile)); err != nil {
			return err
		}
	}
	if len(l.ranks) != l.size.tp*l.size.pp*l.size.ep {
		return &checkpoint.Error{File: dir, Fault: checkpoint.Missing, Why: fmt.Sprintf("%d folders of ranks, want "+
			"tensor %d × pipeline %d × experts %d", len(l.ranks), l.size.tp, l.size.pp, l.size.ep)}
	}
	if err := l.secondIs(); err != nil {
		return err
	}
	if err := l.layers(); err != nil {
		return err
	}
	var errs []error
	for _, name := range sortedKeys(l.d.tensors) {
		errs = append(errs, l.d.tile(name))
	}
	return errors.Join(errs...)
}

// secondIs takes a second number in the folders' names, as in mp_rank_00_001, for that of experts where there is one
// stage alone: the first rank then has the last norm.
func (l *legacy) secondIs() error {
	if l.size.pp == 1 || l.size.ep > 1 {
		return nil
	}
	chunks, err := l.ranks[legacyRank{}].chunks()
	if err != nil {
		return err
	}
	last := chunks[len(chunks)-1]
	if last.get("decoder.final_layernorm.weight") == nil && last.get("language_model.decoder.final_layernorm.weight") == nil {
		return nil
	}
	ranks, files := map[legacyRank]*archive{}, map[legacyRank]*os.File{}
	for r, a := range l.ranks { //lfvet:order each by itself
		to := legacyRank{r.tp, r.ep, r.pp}
		ranks[to], files[to] = a, l.files[r]
	}
	l.ranks, l.files, l.size.pp, l.size.ep = ranks, files, l.size.ep, l.size.pp
	return nil
}

// known are the modules of what a training keeps beside the model: nothing of it is called, nor read.
func known(g global) bool {
	for _, module := range []string{"argparse", "megatron", "numpy", "torch", "_codecs", "_io", "pathlib", "types"} {
		if g.module == module || strings.HasPrefix(g.module, module+".") {
			return true
		}
	}
	return false
}

// rank opens a rank's file.
func (l *legacy) rank(r legacyRank, path string) error {
	if len(l.ranks) >= ranksMax {
		return fmt.Errorf("%s: more than %d ranks", path, ranksMax)
	}
	a, f, err := opened(path, known)
	if err != nil {
		return err
	}
	l.d.files[path], l.ranks[r], l.files[r] = f, a, f
	return nil
}

// chunks of the model that a rank has: one, or several with virtual pipeline stages.
func (a *archive) chunks() ([]*dict, error) {
	root, ok := a.value.(*dict)
	if !ok {
		return nil, a.fault("", "is no dictionary")
	}
	var out []*dict
	for i := -1; ; i++ {
		key := "model"
		if i >= 0 {
			key = fmt.Sprint("model", i)
		}
		d, ok := root.get(key).(*dict)
		if !ok && i >= 0 {
			break
		}
		if ok {
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return nil, a.fault("", "has neither model nor model0")
	}
	return out, nil
}

// views are the weights of a rank's chunks by name, or what the optimizer keeps of them.
func (l *legacy) views(r legacyRank, a *archive) ([]map[string]*view, error) {
	chunks, err := a.chunks()
	if err != nil {
		return nil, err
	}
	var out []map[string]*view
	for _, d := range chunks {
		t, err := a.named(d)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if l.kind == "" {
		return out, nil
	}
	return l.kept(r, a, chunks, out)
}

// inLayer takes the number of a layer off a name.
var inLayer = regexp.MustCompile(`^(?:language_model\.)?decoder\.layers\.(\d+)\.(.+)$`)

// layers goes through the chunks in the order of the model's layers.
func (l *legacy) layers() error {
	chunks := map[legacyRank][]map[string]*view{}
	n := 0
	for r, a := range l.ranks { //lfvet:order each by itself
		c, err := l.views(r, a)
		if err != nil {
			return err
		}
		chunks[r], n = c, max(n, len(c))
		for _, part := range c {
			for name := range part {
				l.experts = max(l.experts, localExpert(name)+1)
			}
		}
	}
	next := 0
	for v := range n {
		for pp := range l.size.pp {
			first, most := next, -1
			for tp := range l.size.tp {
				for ep := range l.size.ep {
					r := legacyRank{tp, pp, ep}
					if len(chunks[r]) != n {
						return l.ranks[r].fault("",
							fmt.Sprintf("has %d chunks of the model, others have %d", len(chunks[r]), n))
					}
					for _, name := range sortedKeys(chunks[r][v]) {
						if m := inLayer.FindStringSubmatch(name); m != nil {
							at, err := strconv.Atoi(m[1])
							if err != nil || at > 1<<20 {
								return l.ranks[r].fault(name, "its layer has no number")
							}
							most = max(most, at)
						}
						if err := l.take(r, name, chunks[r][v][name], first); err != nil {
							return err
						}
					}
				}
			}
			next = first + most + 1
		}
	}
	return nil
}

// expertOf are the names of experts, one by one and grouped.
var expertOf = []*regexp.Regexp{regexp.MustCompile(`^mlp\.experts\.local_experts\.(\d+)\.(linear_fc[12])\.weight()$`),
	regexp.MustCompile(`^mlp\.experts\.()(linear_fc[12])\.weight(\d+)$`)}

// localExpert is the number of an expert on its rank, -1 for a tensor of none.
func localExpert(name string) int {
	if m := inLayer.FindStringSubmatch(name); m != nil {
		for _, form := range expertOf {
			if x := form.FindStringSubmatch(m[2]); x != nil {
				if n, err := strconv.Atoi(x[1] + x[3]); err == nil && n < 1<<16 {
					return n
				}
			}
		}
	}
	return -1
}

// take puts a rank's tensor into its place.
func (l *legacy) take(r legacyRank, name string, t *view, first int) error {
	if strings.HasSuffix(name, "_extra_state") || strings.HasSuffix(name, ".inv_freq") {
		return nil // of modules, and no weight; follows from the configuration
	}
	base, key := name, name
	if m := inLayer.FindStringSubmatch(name); m != nil {
		at, err := strconv.Atoi(m[1])
		if err != nil {
			return err
		}
		base = m[2]
		key = fmt.Sprintf("%sdecoder.layers.%d.", l.g.before, first+at)
		for _, form := range expertOf {
			if x := form.FindStringSubmatch(base); x != nil {
				local := localExpert(name)
				if local < 0 {
					return l.ranks[r].fault(name, "its expert has no number")
				}
				lead := [2]int{r.ep*l.experts + local, l.size.ep * l.experts}
				one := *t
				one.shape, one.stride = append([]int{1}, t.shape...), append([]int64{0}, t.stride...)
				key += "mlp.experts.experts." + x[2] + ".weight"
				if x[2] == "linear_fc1" {
					return l.halves(r, key, &one, 1, lead)
				}
				return l.along(r, key, &one, 2, lead)
			}
		}
		key += base
	}
	// Transformer Engine's layers have the whole of latent attention's first products, Megatron's own cut them
	whole := !cutByTensor(base) && !strings.HasSuffix(base, "_down_proj.weight") || slices.Equal(t.shape, l.want[key])
	sections := l.g.sections(base)
	switch {
	case r.ep > 0 || r.tp > 0 && whole && sections == nil: // the same on all
		return nil
	case sections != nil:
		return l.sections(r, key, t, sections)
	case whole:
		return l.place(r, key, t, make([]int, len(t.shape)), t.shape)
	case byColumns(base):
		return l.along(r, key, t, len(t.shape)-1, [2]int{})
	case strings.HasSuffix(base, "linear_fc1.weight"):
		return l.halves(r, key, t, 0, [2]int{})
	}
	return l.along(r, key, t, 0, [2]int{})
}

// sections places a part that has a share of each of several tensors, one behind the other.
func (l *legacy) sections(r legacyRank, key string, t *view, list []section) error {
	row := 0
	for _, x := range list {
		n := x.rows / l.size.tp
		part := *t
		part.shape = slices.Clone(t.shape)
		part.shape[0] = n
		part.offset += int64(row) * t.stride[0] * int64(t.dtype.Bits()/8)
		if row += n; len(t.shape) == 0 || row > t.shape[0] {
			return l.ranks[r].fault(key, fmt.Sprintf("shape %v, the model needs more rows", t.shape))
		}
		if err := l.along(r, key+"."+x.name, &part, 0, [2]int{}); err != nil {
			return err
		}
	}
	if row != t.shape[0] {
		return l.ranks[r].fault(key, fmt.Sprintf("shape %v, the model has %d rows of it on a rank", t.shape, row))
	}
	return nil
}

// section is rows of a tensor that torch_dist has by themselves.
type section struct {
	name string
	rows int
}

// sections are those that a tensor of a rank is made of, nil where it is one.
func (g *gpt) sections(base string) []section {
	k, v := g.LinearK*g.LinearKeys, g.LinearV*g.LinearValues
	switch base {
	case "self_attention.in_proj.weight":
		return []section{{"query", k}, {"key", k}, {"value", v}, {"z", v}, {"beta", g.LinearValues},
			{"alpha", g.LinearValues}}
	case "self_attention.conv1d.weight":
		return []section{{"query", k}, {"key", k}, {"value", v}}
	}
	return nil
}

// byRows and byColumns are the ends of names that ranks of tensor parallelism have rows or columns of.
var (
	rowsCut = []string{"word_embeddings.weight", "output_layer.weight", "linear_qkv.weight", "linear_qkv.bias",
		"linear_fc1.weight", "linear_q_proj.weight", "linear_q_up_proj.weight", "linear_kv_up_proj.weight",
		"self_attention.A_log", "self_attention.dt_bias"}
	columnsCut = []string{"linear_proj.weight", "linear_fc2.weight", "self_attention.out_proj.weight"}
)

func endsWith(name string, ends []string) bool {
	return slices.ContainsFunc(ends, func(s string) bool { return strings.HasSuffix(name, s) })
}

func byColumns(name string) bool { return endsWith(name, columnsCut) }

// cutByTensor reports whether ranks of tensor parallelism have parts of a tensor.
func cutByTensor(name string) bool { return endsWith(name, rowsCut) || byColumns(name) }

// along places a part that ranks of tensor parallelism have one behind the other. lead is the index of an
// expert and how many there are, along a first axis; zero for none.
func (l *legacy) along(r legacyRank, key string, t *view, axis int, lead [2]int) error {
	if axis < 0 || axis >= len(t.shape) {
		return l.ranks[r].fault(key, fmt.Sprintf("shape %v", t.shape))
	}
	at, shape := make([]int, len(t.shape)), slices.Clone(t.shape)
	at[axis], shape[axis] = r.tp*t.shape[axis], l.size.tp*t.shape[axis]
	if lead[1] > 0 {
		at[0], shape[0] = lead[0], lead[1]
	}
	return l.place(r, key, t, at, shape)
}

// halves places a part of gate and up, of which each rank has its share of both.
func (l *legacy) halves(r legacyRank, key string, t *view, axis int, lead [2]int) error {
	if axis >= len(t.shape) || t.shape[axis]%2 != 0 {
		return l.ranks[r].fault(key, fmt.Sprintf("shape %v is not of gate and up", t.shape))
	}
	half := t.shape[axis] / 2
	shape := slices.Clone(t.shape)
	if shape[axis] = l.size.tp * t.shape[axis]; lead[1] > 0 {
		shape[0] = lead[1]
	}
	for i := range 2 {
		part := *t
		part.shape = slices.Clone(t.shape)
		part.shape[axis] = half
		part.offset += int64(i*half) * t.stride[axis] * int64(t.dtype.Bits()/8)
		at := make([]int, len(t.shape))
		at[0] = lead[0]
		at[axis] = i*l.size.tp*half + r.tp*half
		if err := l.place(r, key, &part, at, shape); err != nil {
			return err
		}
	}
	return nil
}

// place enters a part of a tensor of a shape.
func (l *legacy) place(r legacyRank, key string, t *view, at, shape []int) error {
	s := l.d.tensors[key]
	if s == nil {
		s = &sharded{info: checkpoint.Info{Name: key, DType: t.dtype, Shape: shape}}
		l.d.tensors[key] = s
	}
	if !slices.Equal(s.info.Shape, shape) || s.info.DType != t.dtype {
		return l.ranks[r].fault(key, fmt.Sprintf("%s %v, other ranks have %s %v", t.dtype, shape,
			s.info.DType, s.info.Shape))
	}
	c := &chunk{file: filepath.Base(l.files[r].Name()), t: t, f: l.files[r]}
	for i, n := range t.shape {
		c.box = append(c.box, [2]int{at[i], at[i] + n})
	}
	c.once.Do(func() {}) // it is read already
	s.chunks = append(s.chunks, c)
	var err error
	s.info.Bytes, err = checkpoint.ByteSize(t.dtype, shape)
	return err
}
