package torch

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Megatron's distributed optimizer, where its state may be cut among other ranks of data parallelism alone
// (dp_reshardable), keeps it as it lies in memory: in flat buckets, in which the parameters of a rank of
// tensor and pipeline parallelism follow each other from the last to the first, each from a multiple of 64
// elements. A rank has a buffer of buckets for each of its chunks of the model. Neither the grid nor the
// order, which is that in which Megatron's modules make the parameters and differs between its own layers
// and those of Transformer Engine, is in the files; but the buckets have the float32 copies of the weights,
// and the grid and the order by which these are the weights are the right ones.

// inBucket are keys of buckets: of which ranks, buffer, bucket, and what.
var inBucket = regexp.MustCompile(
	`^(?:chained_\d+\.)?optimizer\.distributed\.dp_group_idx_(\d+)\.gbuf_idx_(\d+)\..*\.bucket_idx_(\d+)\.(\w+)$`)

// bucketAlign is the multiple of elements that a parameter begins at.
const bucketAlign = 64

// aligned is at, or the next multiple of bucketAlign.
func aligned(at int) int { return (at + bucketAlign - 1) / bucketAlign * bucketAlign }

// bucket is one, of each kind by its key.
type bucket struct {
	size int
	keys map[string]string
}

// bucketsOf are the buckets of each chunk of the model of each rank of tensor and pipeline parallelism; why
// says what they have that is not read.
func bucketsOf(d *DCP) (all [][][]*bucket, why string) {
	have := map[[3]int]*bucket{}
	size := [2]int{}
	for _, t := range d.Tensors() {
		m := inBucket.FindStringSubmatch(t.Name)
		if m == nil {
			continue
		}
		var at [3]int
		for i := range at {
			n, err := strconv.Atoi(m[i+1])
			if err != nil || n >= ranksMax {
				return nil, "with a rank, buffer or bucket of too great a number"
			}
			at[i] = n
		}
		if len(t.Shape) != 1 || t.DType != checkpoint.F32 {
			return nil, "that are no vectors of float32"
		}
		b := have[at]
		if b == nil {
			b = &bucket{t.Shape[0], map[string]string{}}
			have[at] = b
		}
		if b.size != t.Shape[0] {
			return nil, "of kinds that differ in size"
		}
		b.keys[m[4]] = t.Name
		size[0], size[1] = max(size[0], at[0]+1), max(size[1], at[1]+1)
	}
	if size[0]*size[1] > len(have) {
		return nil, fmt.Sprintf("of which %d ranks with %d buffers each have not all", size[0], size[1])
	}
	taken := 0
	for r := range size[0] {
		all = append(all, make([][]*bucket, size[1]))
		for c := range size[1] {
			for b := have[[3]int{r, c, 0}]; b != nil; b = have[[3]int{r, c, len(all[r][c])}] {
				all[r][c] = append(all[r][c], b)
				taken++
			}
		}
	}
	if taken != len(have) {
		return nil, "of which some are missing"
	}
	return all, ""
}

// buckets reads them.
func (s *States) buckets(g *gpt, d *DCP, links []*composed) error {
	refused := func(why string) error {
		return &checkpoint.Error{File: d.said, Fault: checkpoint.Malformed, Why: "its optimizer is in buckets of " +
			"gradients (dp_reshardable) " + why, Try: "save it with --dist-ckpt-optim-fully-reshardable"}
	}
	if _, err := g.match(d, d.said, links); err != nil {
		return err
	}
	if g.of.experts.router != "" || g.of.latent || g.linear() || g.before != "" {
		return refused("of a model with other layers than Llama's, which alone are read so")
	}
	all, why := bucketsOf(d)
	if why != "" {
		return refused(why)
	}
	at := map[string][]int{}
	for _, c := range turned(links) {
		at[c.name] = d.tensors[c.name].info.Shape // the vocabulary may be filled up
	}
	found, err := findSpread(g, d, all, at)
	if err != nil {
		return err
	}
	if found == nil {
		return refused("of a grid or in an order that is not known: in none that is are its float32 copies the weights")
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

// findSpread finds the grid and the order by which the buckets have the weights; nil for none.
func findSpread(g *gpt, d *DCP, all [][][]*bucket, at map[string][]int) (*spread, error) {
	for tp := 1; tp <= len(all); tp++ {
		if len(all)%tp != 0 {
			continue
		}
		for _, order := range layerOrders {
			x := &spread{Source: d, kind: "param", of: map[string][]inFlat{}, infos: map[string]checkpoint.Info{},
				layered: map[string]bool{}}
			if !x.grid(g, at, order, all, tp) {
				continue
			}
			if ok, err := x.same(d); ok || err != nil {
				return x, err
			}
		}
	}
	return nil, nil
}

// flatParam is a parameter of a chunk: rectangles of a tensor that may be of all layers, which follow each other.
type flatParam struct {
	name   string
	layer  int // -1 for none
	boxes  [][2][2]int
	copied bool // another rank has it, too, and is the one to be read
}

// layerOrders are those in which Megatron's modules make the parameters of a dense layer: its own,
// and Transformer Engine's.
var layerOrders = func() [][]string {
	const norm1, norm2 = "self_attention.linear_qkv.layer_norm_weight", "mlp.linear_fc1.layer_norm_weight"
	attention := []string{"self_attention.linear_proj.weight", "self_attention.linear_proj.bias"}
	qkv := []string{"self_attention.linear_qkv.weight", "self_attention.linear_qkv.bias"}
	heads := []string{"self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight"}
	mlp := []string{"mlp.linear_fc1.weight", "mlp.linear_fc2.weight"}
	return [][]string{slices.Concat([]string{norm1}, attention, qkv, heads, []string{norm2}, mlp),
		slices.Concat(attention, []string{norm1}, qkv, heads, []string{norm2}, mlp)}
}()

// rectangles are what rank r of tp has of a tensor without its axis of layers; a vector is one column.
func rectangles(name string, shape []int, r, tp int) (out [][2][2]int, ok bool) {
	rows, cols := shape[0], 1
	if len(shape) > 1 {
		cols = shape[1]
	}
	part := func(from, n int) [2]int { return [2]int{from + r*n/tp, from + (r+1)*n/tp} }
	switch {
	case tp == 1 || !cutByTensor(name):
		return [][2][2]int{{{0, rows}, {0, cols}}}, true
	case byColumns(name):
		return [][2][2]int{{{0, rows}, part(0, cols)}}, cols%tp == 0
	case strings.HasSuffix(name, "linear_fc1.weight"): // gate, then up
		half := rows / 2
		return [][2][2]int{{part(0, half), {0, cols}}, {part(half, half), {0, cols}}}, rows%(2*tp) == 0
	}
	return [][2][2]int{{part(0, rows), {0, cols}}}, rows%tp == 0
}

// chunk are the parameters that rank r of tp has of some layers, with what stands before the first layer and
// behind the last one; ok is false where they cannot be cut so.
func (x *spread) chunk(g *gpt, at map[string][]int, order []string, layers [2]int, last bool, r, tp int) (
	list []flatParam, ok bool) {
	ok = true
	add := func(name string, n int, copied bool) {
		key, lead := name, []int(nil)
		if n >= 0 {
			key, lead = g.key(n, name)
		}
		shape := at[key]
		if len(shape) <= len(lead) {
			return
		}
		boxes, fits := rectangles(key, shape[len(lead):], r, tp)
		ok = ok && fits
		copied = copied || r > 0 && !cutByTensor(key)
		list = append(list, flatParam{key, slices.Concat(lead, []int{-1})[0], boxes, copied})
		bytes := int64(4)
		for _, k := range shape {
			bytes *= int64(k)
		}
		x.infos[key] = checkpoint.Info{Name: key, DType: checkpoint.F32, Shape: shape, Bytes: bytes}
		x.layered[key] = len(lead) > 0
	}
	const embedding = "embedding.word_embeddings.weight"
	if layers[0] == 0 {
		add(embedding, -1, false)
	}
	for n := layers[0]; n < layers[1]; n++ {
		for _, name := range order {
			add(name, n, false)
		}
	}
	if last {
		add("decoder.final_layernorm.weight", -1, false)
		if g.tied() && layers[0] > 0 { // the stage has the embedding once more
			add(embedding, -1, true)
		} else {
			add("output_layer.weight", -1, false)
		}
	}
	return list, ok
}

// grid lays out all ranks, tensor parallelism first, each stage with as many layers as its buckets take;
// false where they do not take all, or more.
func (x *spread) grid(g *gpt, at map[string][]int, order []string, all [][][]*bucket, tp int) bool {
	pp, next := len(all)/tp, 0
	chunks := len(all[0]) * pp
	for c := range chunks {
		of, stage, last := c/pp, c%pp, c == chunks-1
		from := next
		for end := from; end <= g.Layers; end++ {
			list, ok := x.chunk(g, at, order, [2]int{from, end}, last, 0, tp)
			if ok && (!last || end == g.Layers) && x.lay(list, all[stage*tp][of], false) {
				next = end
				break
			}
			if end == g.Layers {
				return false
			}
		}
		for r := range tp {
			list, ok := x.chunk(g, at, order, [2]int{from, next}, last, r, tp)
			if !ok || !x.lay(list, all[stage*tp+r][of], true) {
				return false
			}
		}
	}
	return next == g.Layers
}

// inFlat is where a rectangle of a parameter lies.
type inFlat struct {
	b      *bucket
	at     int
	layer  int // -1 for none
	box    [2][2]int
	copied bool
}

// spread is a source of the model's tensors that lie in buckets.
type spread struct {
	checkpoint.Source
	kind  string
	infos map[string]checkpoint.Info
	of    map[string][]inFlat
	// layered are tensors of all layers, along their first axis
	layered map[string]bool
}

// lay gives each parameter of a chunk its place, from the last to the first, and notes it if that is wanted;
// false where they do not fill the buckets. A bucket may end with what the next one is aligned by.
func (x *spread) lay(list []flatParam, all []*bucket, note bool) bool {
	next, b := 0, 0
	for _, p := range slices.Backward(list) {
		if b == len(all) {
			return false
		}
		next = aligned(next)
		for _, box := range p.boxes {
			n := (box[0][1] - box[0][0]) * (box[1][1] - box[1][0])
			if n > all[b].size-next {
				return false
			}
			if note {
				x.of[p.name] = append(x.of[p.name], inFlat{b: all[b], at: next, layer: p.layer, box: box,
					copied: p.copied})
			}
			next += n
		}
		if next == all[b].size || aligned(next) == all[b].size {
			next, b = 0, b+1
		}
	}
	return b == len(all)
}

// same reports whether the float32 copies of all ranks are the weights of d.
func (x *spread) same(d *DCP) (bool, error) {
	for _, name := range sortedKeys(x.of) {
		for _, p := range x.of[name] {
			var lead, rest [][2]int
			if x.layered[name] {
				lead = [][2]int{{p.layer, p.layer + 1}}
			}
			if len(x.infos[name].Shape) > len(lead)+1 {
				rest = [][2]int{p.box[1]}
			}
			ok, err := copies(d, name, lead, p.box[0], rest, func(rows [2]int, dst []byte) error {
				return x.part(p, rows, p.box[1], dst)
			})
			if !ok || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// copiedRows bounds the numbers that are compared at a time.
const copiedRows = 1 << 20

// copies reports whether float32 copies, rounded to the type of a weight of d, are some rows of it: at lead
// of its first axes, and of all that rest takes of the last ones. read gives the copies of some rows.
func copies(d *DCP, name string, lead [][2]int, rows [2]int, rest [][2]int,
	read func(rows [2]int, dst []byte) error) (bool, error) {
	to, ok := map[checkpoint.DType]tensor.DType{checkpoint.F32: tensor.F32, checkpoint.BF16: tensor.BF16,
		checkpoint.F16: tensor.F16}[d.tensors[name].info.DType]
	if !ok {
		return false, nil
	}
	cols := 1
	for _, x := range rest {
		cols *= x[1] - x[0]
	}
	step := max(1, copiedRows/max(1, cols))
	for row := rows[0]; row < rows[1]; row += step {
		rows := [2]int{row, min(row+step, rows[1])}
		n := (rows[1] - rows[0]) * cols
		wide, raw := make([]float32, n), make([]byte, 4*n)
		if err := read(rows, raw); err != nil {
			return false, err
		}
		tensor.Widen(tensor.F32, raw, wide)
		got, want := make([]byte, n*to.Size()), make([]byte, n*to.Size())
		tensor.Narrow(to, wide, got)
		if err := d.ReadRanges(name, slices.Concat(lead, [][2]int{rows}, rest), want); err != nil {
			return false, err
		}
		if !bytes.Equal(got, want) {
			return false, nil
		}
	}
	return true, nil
}

// part reads rows and columns of a tensor that lie within a rectangle.
func (x *spread) part(p inFlat, rows, cols [2]int, dst []byte) error {
	width := p.box[1][1] - p.box[1][0]
	from := p.at + (rows[0]-p.box[0][0])*width + cols[0] - p.box[1][0]
	n, step := cols[1]-cols[0], 1
	if n == width {
		n, step = n*(rows[1]-rows[0]), rows[1]-rows[0]
	}
	for row := rows[0]; row < rows[1]; row += step {
		if err := x.Source.ReadRanges(p.b.keys[x.kind], [][2]int{{from, from + n}}, dst[:4*n]); err != nil {
			return err
		}
		from, dst = from+width, dst[4*n:]
	}
	return nil
}

// Tensors implements checkpoint.Source.
func (x *spread) Tensors() []checkpoint.Info { return sortedInfos(x.infos) }

// ReadRanges implements checkpoint.Source: rows of a rectangle follow each other in its bucket.
func (x *spread) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	info, ok := x.infos[name]
	if !ok {
		return &checkpoint.Error{Tensor: name, Fault: checkpoint.Missing, Why: "there is no such tensor"}
	}
	if err := checkBox(info.DType, info.Shape, ranges, dst); err != nil {
		return fmt.Errorf("tensor %s: %w", name, err)
	}
	layers, box := [2]int{-1, 0}, ranges
	if x.layered[name] {
		layers, box = ranges[0], ranges[1:]
	}
	want := [2][2]int{box[0], {0, 1}}
	if len(box) > 1 {
		want[1] = box[1]
	}
	width := want[1][1] - want[1][0]
	size := 4 * width * (want[0][1] - want[0][0])
	for n := layers[0]; n < layers[1]; n++ {
		for _, p := range x.of[name] {
			if p.copied || x.layered[name] && p.layer != n {
				continue
			}
			rows, cols := overlap(want[0], p.box[0]), overlap(want[1], p.box[1])
			if rows[0] >= rows[1] || cols[0] >= cols[1] {
				continue
			}
			raw := make([]byte, 4*(rows[1]-rows[0])*(cols[1]-cols[0]))
			if err := x.part(p, rows, cols, raw); err != nil {
				return err
			}
			each := 4 * (cols[1] - cols[0])
			for row := rows[0]; row < rows[1]; row++ {
				at := 4 * ((row-want[0][0])*width + cols[0] - want[1][0])
				copy(dst[at:at+each], raw)
				raw = raw[each:]
			}
		}
		dst = dst[size:]
	}
	return nil
}

// overlap is what two intervals have in common.
func overlap(a, b [2]int) [2]int { return [2]int{max(a[0], b[0]), min(a[1], b[1])} }
