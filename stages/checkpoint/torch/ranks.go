package torch

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Grid is how Megatron's ranks have a model: degrees of tensor, pipeline and expert parallelism, and
// virtual stages of a pipeline's stage. 0 is 1.
type Grid struct{ TP, PP, VP, EP int }

func (x Grid) whole() Grid { return Grid{max(1, x.TP), max(1, x.PP), max(1, x.VP), max(1, x.EP)} }

// fits says why a model cannot be cut so, "" where it can.
func (x Grid) fits(g *gpt) string {
	switch {
	case g.Layers%(x.PP*x.VP) != 0:
		return fmt.Sprintf("%d layers are not to be shared by %d stages of %d virtual ones", g.Layers, x.PP, x.VP)
	case x.TP > 1 && (*g.KV%x.TP != 0 || g.Heads%x.TP != 0 || g.MLP%x.TP != 0 || g.Expert%x.TP != 0 ||
		g.Shared%x.TP != 0 || g.LinearKeys%x.TP != 0 || g.LinearValues%x.TP != 0):
		return fmt.Sprintf("heads, groups or widths are no multiples of %d ranks", x.TP)
	case x.EP > 1 && (g.Experts == 0 || g.Experts%x.EP != 0):
		return fmt.Sprintf("%d experts are not to be shared by %d ranks", g.Experts, x.EP)
	case x.TP > 4096 || x.PP > 4096 || x.VP > 4096 || x.EP > 4096:
		return "more than 4096 ranks along an axis"
	}
	return ""
}

// WriteRanks writes the tensors of a Hugging Face directory in Megatron's older form, a file for each rank
// of a grid, below dir. Rows of the vocabulary are filled up to a multiple of divisible times the grid's
// ranks of tensor parallelism by the last one.
func WriteRanks(j *checkpoint.Journal, dir string, src checkpoint.Source, like string, divisible int, grid Grid) error {
	g, err := readGPT(like)
	if err != nil {
		return err
	}
	x := grid.whole()
	if why := x.fits(g); why != "" {
		return &checkpoint.Error{File: dir, Fault: checkpoint.Malformed, Why: why}
	}
	g.apart = true
	src = shift(src, gain, -1)
	all, err := g.rows(src, like, divisible*x.TP)
	if err != nil {
		return err
	}
	all = g.joinSections(all)
	var files []checkpoint.Planned
	for pp := range x.PP {
		for tp := range x.TP {
			for ep := range x.EP {
				f, err := g.rankFile(dir, src, all, x, legacyRank{tp, pp, ep})
				if err != nil {
					return err
				}
				files = append(files, f)
			}
		}
	}
	files = append(files, checkpoint.FixedFile(filepath.Join(dir, latestFile), []byte(releaseDir)))
	return checkpoint.Build(j, files, nil)
}

// joinSections puts sections of a tensor behind each other, as a rank's module has them.
func (g *gpt) joinSections(all []*composed) (out []*composed) {
	for _, c := range all {
		base := c.name
		if m := inLayer.FindStringSubmatch(c.name); m != nil {
			base = m[2]
		}
		whole, last := base[:max(0, strings.LastIndex(base, "."))], base[strings.LastIndex(base, ".")+1:]
		list := g.sections(whole)
		if list == nil {
			out = append(out, c)
			continue
		}
		name := strings.TrimSuffix(c.name, "."+last)
		i := slices.IndexFunc(out, func(c *composed) bool { return c.name == name })
		if i < 0 {
			i, out = len(out), append(out, &composed{name: name, rest: c.rest, sections: make([][]piece, len(list))})
		}
		at := slices.IndexFunc(list, func(s section) bool { return s.name == last })
		out[i].sections[at] = c.parts[place0(nil)]
	}
	return out
}

// rankFile is a rank's file.
func (g *gpt) rankFile(dir string, src checkpoint.Source, all []*composed, x Grid,
	r legacyRank) (checkpoint.Planned, error) {
	name := fmt.Sprintf("mp_rank_%02d", r.tp)
	if x.PP > 1 {
		name += fmt.Sprintf("_%03d", r.pp)
	}
	if x.EP > 1 {
		name += fmt.Sprintf("_%03d", r.ep)
	}
	path := filepath.Join(dir, releaseDir, name, rankFile)
	p := &pickler{}
	p.op(0x80, 2, '}', '(')
	p.text("checkpoint_version")
	p.float(3)
	p.text("iteration")
	p.int(0)
	joint := &joined{}
	var tensors []checkpoint.Info
	for v := range x.VP {
		key := "model"
		if x.VP > 1 {
			key = fmt.Sprint("model", v)
		}
		p.text(key)
		p.op('}', '(')
		list := g.chunk(all, x, r, v)
		a, err := assemble(src, list)
		if err != nil {
			return checkpoint.Planned{}, fmt.Errorf("%s: %w", path, err)
		}
		for _, c := range list { // in the order of the model
			t := a.infos[c.name]
			p.text(c.name)
			if err := p.tensor(t, fmt.Sprint(len(tensors))); err != nil {
				return checkpoint.Planned{}, err
			}
			t.Name = fmt.Sprint(v, " ", t.Name)
			tensors = append(tensors, t)
		}
		p.op('u')
		joint.join(prefixed{a, fmt.Sprint(v, " ")})
	}
	p.op('u', '.')
	f := &archives{path: path, src: joint}
	if err := f.add("model_optim_rng", p.b, tensors); err != nil {
		return checkpoint.Planned{}, err
	}
	return f.planned(), nil
}

// chunk are the tensors of a rank's virtual stage v.
func (g *gpt) chunk(all []*composed, x Grid, r legacyRank, v int) (out []*composed) {
	each := g.Layers / (x.PP * x.VP)
	from := (v*x.PP + r.pp) * each
	for _, c := range all {
		base, name := c.name, c.name
		if m := inLayer.FindStringSubmatch(c.name); m != nil {
			var n int
			if _, err := fmt.Sscan(m[1], &n); err != nil || n < from || n >= from+each {
				continue
			}
			base = m[2]
			name = fmt.Sprintf("%sdecoder.layers.%d.%s", g.before, n-from, base)
		} else {
			last := strings.HasSuffix(base, "final_layernorm.weight") || strings.HasSuffix(base, "output_layer.weight")
			if last && (r.pp < x.PP-1 || v < x.VP-1) || !last && (r.pp > 0 || v > 0) {
				continue
			}
		}
		if len(c.lead) == 0 {
			one := c.cut(base, x.TP, r.tp)
			one.name = name
			out = append(out, one)
			continue
		}
		share := c.lead[0] / x.EP
		for e := range share {
			one := &composed{rest: c.rest,
				parts: map[string][]piece{place0(nil): c.parts[fmt.Sprint([]int{r.ep*share + e})]}}
			one = one.cut(base, x.TP, r.tp)
			one.name = strings.Replace(name, "mlp.experts.experts.", fmt.Sprintf("mlp.experts.local_experts.%d.", e), 1)
			out = append(out, one)
		}
	}
	return out
}

// cut is the part that a rank of tensor parallelism has.
func (c *composed) cut(base string, tp, rank int) *composed {
	pieces := c.parts[place0(nil)]
	out := &composed{rest: c.rest, col: c.col}
	share := func(list []piece) []piece {
		n := 0
		for _, p := range list {
			n += p.rows
		}
		return rowsOf(list, rank*n/tp, (rank+1)*n/tp)
	}
	switch {
	case c.sections != nil:
		pieces = nil
		for _, s := range c.sections {
			pieces = append(pieces, share(s)...)
		}
	case tp == 1 || !cutByTensor(base):
	case byColumns(base):
		n := c.rest[0] / tp
		out.rest, out.col = append([]int{n}, c.rest[1:]...), rank*n
	case strings.HasSuffix(base, "linear_fc1.weight"):
		n := 0
		for _, p := range pieces {
			n += p.rows
		}
		pieces = append(share(rowsOf(pieces, 0, n/2)), share(rowsOf(pieces, n/2, n))...)
	default:
		pieces = share(pieces)
	}
	out.parts = map[string][]piece{place0(nil): pieces}
	return out
}

// rowsOf are rows from one to another of pieces behind each other.
func rowsOf(list []piece, from, to int) (out []piece) {
	at := 0
	for _, p := range list {
		lo, hi := max(from, at), min(to, at+p.rows)
		if lo < hi {
			q := p
			q.row, q.rows = p.row+lo-at, hi-lo
			out = append(out, q)
		}
		at += p.rows
	}
	return out
}

// cutter gives the parts that ranks of a grid write of a tensor of torch_dist, which may be of an optimizer.
func (g *gpt) cutter(x Grid) func(t checkpoint.Info) []dcpPart {
	each := g.Layers / (x.PP * x.VP)
	return func(t checkpoint.Info) []dcpPart {
		name := t.Name
		if m := ofModel.FindStringSubmatch(name); m != nil {
			name = m[2]
		}
		box := whole1(t)[0].box
		parts := []dcpPart{{box, 0}}
		rest, inside := strings.CutPrefix(name, g.before+"decoder.layers.")
		base, axis := name, 0
		if m := inLayer.FindStringSubmatch(name); m != nil {
			base = m[2]
			var n int
			if _, err := fmt.Sscan(m[1], &n); err == nil {
				parts[0].file = n / each % x.PP * x.TP * x.EP
			}
		} else if inside {
			base, axis = rest, 1
			parts = split(parts, 0, g.Layers, func(n int) int { return n / each % x.PP * x.TP * x.EP })
		} else if strings.Contains(base, "final_layernorm") || strings.HasSuffix(base, "output_layer.weight") {
			parts[0].file = (x.PP - 1) * x.TP * x.EP
		}
		if strings.HasPrefix(base, "mlp.experts.experts.") {
			parts = split(parts, axis, x.EP, func(e int) int { return e * x.TP })
			axis++
		}
		whole, _, _ := strings.Cut(base, ".weight.") // a section
		switch {
		case x.TP == 1 || !cutByTensor(base) && g.sections(whole+".weight") == nil:
		case byColumns(base):
			parts = split(parts, len(t.Shape)-1, x.TP, func(n int) int { return n })
		case strings.HasSuffix(base, "linear_fc1.weight"):
			parts = split(parts, axis, 2*x.TP, func(n int) int { return n % x.TP })
		default:
			parts = split(parts, axis, x.TP, func(n int) int { return n })
		}
		return parts
	}
}

// split cuts parts along an axis into n equal ones, whose files are so much behind; an axis that is no multiple stays.
func split(parts []dcpPart, axis, n int, file func(i int) int) (out []dcpPart) {
	for _, p := range parts {
		size := p.box[axis][1] - p.box[axis][0]
		if size%n != 0 {
			out = append(out, p)
			continue
		}
		for i := range n {
			q := dcpPart{slices.Clone(p.box), p.file + file(i)}
			q.box[axis] = [2]int{p.box[axis][0] + i*size/n, p.box[axis][0] + (i+1)*size/n}
			out = append(out, q)
		}
	}
	return out
}
