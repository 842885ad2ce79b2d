package torch

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Megatron's distributed optimizer, where its state may be cut among other ranks of data parallelism alone
// (dp_reshardable), keeps it as it lies in memory: in flat buckets, in which the parameters of the model
// follow each other from the last to the first, each from a multiple of 64 elements. Their order is that in
// which Megatron's modules make them, which differs between its own layers and those of Transformer Engine
// and is not in the files; but the buckets have the float32 copies of the weights, and the order by which
// these are the weights is the right one.

// inBucket are keys of buckets: of which ranks, buffer, bucket, and what.
var inBucket = regexp.MustCompile(
	`^(?:chained_\d+\.)?optimizer\.distributed\.dp_group_idx_(\d+)\.gbuf_idx_(\d+)\..*\.bucket_idx_(\d+)\.(\w+)$`)

// bucketAlign is the multiple of elements that a parameter begins at.
const bucketAlign = 64

// bucket is one, of each kind by its key.
type bucket struct {
	number int
	size   int
	keys   map[string]string
}

// buckets reads them.
func (s *States) buckets(g *gpt, d *DCP, links []*composed) error {
	refused := func(why string) error {
		return &checkpoint.Error{File: d.said, Fault: checkpoint.Malformed,
			Why: "its optimizer is in buckets of gradients " +
				"(dp_reshardable) " + why, Try: "save it with --dist-ckpt-optim-fully-reshardable"}
	}
	if _, err := g.match(d, d.said, links); err != nil {
		return err
	}
	if g.of.experts.router != "" || g.of.latent || g.linear() || g.before != "" {
		return refused("of a model with other layers than Llama's, which alone are read so")
	}
	var all []*bucket
	for _, t := range d.Tensors() {
		m := inBucket.FindStringSubmatch(t.Name)
		if m == nil {
			continue
		}
		number, err := strconv.Atoi(m[3])
		if err != nil || m[1] != "0" || m[2] != "0" || len(t.Shape) != 1 || t.DType != checkpoint.F32 {
			return refused("of several ranks of tensor or pipeline parallelism, or of several types")
		}
		i := slices.IndexFunc(all, func(b *bucket) bool { return b.number == number })
		if i < 0 {
			i, all = len(all), append(all, &bucket{number, t.Shape[0], map[string]string{}})
		}
		if all[i].size != t.Shape[0] {
			return refused("of kinds that differ in size")
		}
		all[i].keys[m[4]] = t.Name
	}
	slices.SortFunc(all, func(a, b *bucket) int { return cmp.Compare(a.number, b.number) })
	at := map[string][]int{}
	for _, c := range turned(links) {
		at[c.name] = d.tensors[c.name].info.Shape // the vocabulary may be filled up
	}
	var found *spread
	for _, order := range orders(g, at) {
		x := &spread{Source: d, kind: "param", of: map[string][]inFlat{},
			infos:   map[string]checkpoint.Info{},
			layered: map[string]bool{}}
		if x.lay(order, all) && x.same(d) {
			found = x
			break
		}
	}
	if found == nil {
		return refused("in an order that is not known: in none that is are its float32 copies the weights")
	}
	for _, kind := range []string{"param", "exp_avg", "exp_avg_sq"} {
		x := *found
		x.kind = kind
		if err := s.add(g, kind, &x, d.said, links); err != nil {
			return err
		}
	}
	return nil
}

// flatParam is a parameter of Megatron's model: a part of a tensor that may be of all layers.
type flatParam struct {
	name  string
	layer int // -1 for none
	shape []int
}

// orders are those in which Megatron's modules make the parameters of a dense model: of its own layers, and
// of Transformer Engine's.
func orders(g *gpt, at map[string][]int) (out [][]flatParam) {
	const norm1, norm2 = "self_attention.linear_qkv.layer_norm_weight", "mlp.linear_fc1.layer_norm_weight"
	attention := []string{"self_attention.linear_proj.weight", "self_attention.linear_proj.bias"}
	qkv := []string{"self_attention.linear_qkv.weight", "self_attention.linear_qkv.bias"}
	heads := []string{"self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight"}
	mlp := []string{"mlp.linear_fc1.weight", "mlp.linear_fc2.weight"}
	for _, layer := range [][]string{
		slices.Concat([]string{norm1}, attention, qkv, heads, []string{norm2}, mlp),
		slices.Concat(attention, []string{norm1}, qkv, heads, []string{norm2}, mlp)} {
		var list []flatParam
		add := func(name string, n int) {
			key, lead := name, []int(nil)
			if n >= 0 {
				key, lead = g.key(n, name)
			}
			if shape := at[key]; shape != nil {
				list = append(list, flatParam{key, slices.Concat(lead, []int{-1})[0], shape[len(lead):]})
			}
		}
		add("embedding.word_embeddings.weight", -1)
		for n := range g.Layers {
			for _, name := range layer {
				add(name, n)
			}
		}
		add("decoder.final_layernorm.weight", -1)
		add("output_layer.weight", -1)
		out = append(out, list)
	}
	return out
}

// inFlat is where a parameter lies.
type inFlat struct {
	b     *bucket
	at    int
	count int
}

// spread is a source of the model's tensors that lie in buckets.
type spread struct {
	checkpoint.Source
	kind  string
	infos map[string]checkpoint.Info
	of    map[string][]inFlat // by layer
	// layered are tensors of all layers, along their first axis
	layered map[string]bool
}

// lay gives each parameter its place, from the last to the first; false where they do not fill the buckets.
func (x *spread) lay(order []flatParam, all []*bucket) bool {
	next, b := 0, 0
	for _, p := range slices.Backward(order) {
		n := 1
		for _, s := range p.shape {
			n *= s
		}
		if b == len(all) {
			return false
		}
		next = (next + bucketAlign - 1) / bucketAlign * bucketAlign
		if next+n > all[b].size {
			return false
		}
		info := x.infos[p.name]
		info.Name, info.DType, info.Shape = p.name, checkpoint.F32, p.shape
		places := append([]inFlat{{all[b], next, n}}, x.of[p.name]...)
		if p.layer >= 0 {
			x.layered[p.name] = true
			info.Shape = append([]int{len(places)}, p.shape...)
		}
		info.Bytes = 4 * int64(n*len(places))
		x.of[p.name], x.infos[p.name] = places, info
		if next += n; next == all[b].size {
			next, b = 0, b+1
		}
	}
	return b == len(all)
}

// same reports whether the float32 copies, rounded to the type of the weights, are those of d.
func (x *spread) same(d *DCP) bool {
	for _, t := range d.Tensors() {
		info, ok := x.infos[t.Name]
		if !ok {
			continue
		}
		src, err := checkpoint.Cast(x, strings.ToLower(string(t.DType)))
		if err != nil || !slices.Equal(info.Shape, t.Shape) {
			return false
		}
		whole := func(s checkpoint.Source) []byte {
			out := make([]byte, 0, t.Bytes)
			parts, err := checkpoint.PartsOf(s, t, 0)
			for _, p := range parts {
				if err == nil {
					err = p.Fill(func(b []byte) error { out = append(out, b...); return nil })
				}
			}
			if err != nil {
				return nil
			}
			return out
		}
		a, b := whole(src), whole(d)
		if a == nil || !bytes.Equal(a, b) {
			return false
		}
	}
	return true
}

// Tensors implements checkpoint.Source.
func (x *spread) Tensors() []checkpoint.Info { return sortedInfos(x.infos) }

// ReadRanges implements checkpoint.Source: rows of a parameter follow each other in its bucket.
func (x *spread) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	info, ok := x.infos[name]
	if !ok {
		return &checkpoint.Error{Tensor: name, Fault: checkpoint.Missing, Why: "there is no such tensor"}
	}
	if err := checkBox(info.DType, info.Shape, ranges, dst); err != nil {
		return fmt.Errorf("tensor %s: %w", name, err)
	}
	places, shape := x.of[name], info.Shape
	layers, box := [2]int{0, 1}, ranges
	if x.layered[name] {
		layers, box, shape = ranges[0], ranges[1:], shape[1:]
	}
	for n := layers[0]; n < layers[1]; n++ {
		p := places[n]
		for row := box[0][0]; row < box[0][1]; row++ {
			from, to := row, row+1
			if len(shape) > 1 {
				from, to = row*shape[1]+box[1][0], row*shape[1]+box[1][1]
			}
			size := 4 * (to - from)
			if err := x.Source.ReadRanges(p.b.keys[x.kind], [][2]int{{p.at + from, p.at + to}},
				dst[:size]); err != nil {
				return err
			}
			dst = dst[size:]
		}
	}
	return nil
}
