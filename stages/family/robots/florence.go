package robots

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// view makes rows of the tower's map: its mean and its places, for each view; zeros for one that is missing.
func (x *xvla) view(r *block.Rec, v *grad.Value) *grad.Value {
	t, stage := r.T, len(x.f.Widths)-1
	images, side, n := x.v.images(r.Shape), x.v.side(stage), x.f.Widths[stage]
	table := func(part string, width int, at func(i int) int) *grad.Value {
		w := t.Param(xvlaVLM+"image_pos_embed."+part+".weight", []int{x.f.Places, width}, -1, 1, true)
		return t.Take(w, t.Indices("xvla."+part, images*side*side, at))
	}
	v = t.Add(v, t.Concat(1, table("column_embeddings", n-n/2, func(i int) int { return i % side }),
		table("row_embeddings", n/2, func(i int) int { return i / side % side })))
	end := t.Still()
	times := t.Param(xvlaVLM+"visual_temporal_embed.pos_idx_to_embed", []int{x.f.Times, n}, -1, 1, false)
	end()
	v = t.Add(v, t.Take(times, t.ConstI32("xvla.first", make([]int32, images*side*side))))
	win := kernels.Window{Size: side, Stride: side, Dilation: 1}
	mean := t.Rows(t.Pool(t.Space(v, images, side, side), kernels.MeanPool, win, win))
	v = t.Take(t.Concat(0, mean, v), t.ConstI32("xvla.seen", each(images, part32{n: 1}, part32{n: side * side})))
	v = t.Linear(v, t.Param(xvlaVLM+"image_projection", []int{x.f.Hidden, n}, -1, 1, true), nil)
	v = r.LayerNorm(xvlaVLM+"image_proj_norm", v, x.f.Hidden, actEps)
	there := t.Take(x.d.There(r), levelsOf(t, "xvla.view", images, x.seen()))
	return t.ScaleRows(v, t.View(there, images*x.seen()))
}

// words makes what Florence-2's encoder reads: the first view and the task, with their places.
func (x *xvla) words(r *block.Rec, seen *grad.Value) *grad.Value {
	t, n, levels := r.T, x.f.Hidden, family.Levels(r.Shape)
	table := t.Param(xvlaText+"embed_tokens.weight", []int{x.c.Vocab, n}, -1, 1, true)
	ids, pads := x.d.WordIDs(r)
	words := t.Add(t.Take(table, ids), t.Take(t.Detach(table), pads))
	end := t.Still() // nothing speaks
	t.Param(xvlaVLM+"language_model.final_logits_bias", []int{x.c.Vocab}, -1, 1, false)
	end()
	var at []int32
	for s := range levels {
		for k := range x.seen() {
			at = append(at, int32(s*x.p.Views*x.seen()+k))
		}
		for k := range x.k.Words {
			at = append(at, int32(levels*x.p.Views*x.seen()+s*x.k.Words+k))
		}
	}
	v := t.Take(t.Concat(0, seen, words), t.ConstI32("xvla.told", at))
	places := t.Indices("xvla.told.places", len(at), func(i int) int {
		return 2 + i%x.told() // as in BART, whose first two are no places
	})
	w := t.Param(xvlaText+"embed_positions.weight", []int{x.f.Positions + 2, n}, -1, 1, true)
	v = t.Add(v, t.Take(w, places))
	return r.LayerNorm(xvlaText+"layernorm_embedding", v, n, actEps)
}

// reads is a layer of the encoder, whose norms stand behind what they norm.
func (x *xvla) reads(r *block.Rec, name string, v *grad.Value) *grad.Value {
	t, n := r.T, x.f.Hidden
	v = t.Add(v, x.attend(r, name+".self_attn", ".out_proj", v, borders(r, "xvla.told.cu", x.told()), n, x.f.TextHeads))
	v = r.LayerNorm(name+".self_attn_layer_norm", v, n, actEps)
	v = t.Add(v, x.fed(r, name+".", v, n, x.f.Inter, kernels.GELU))
	return r.LayerNorm(name+".final_layer_norm", v, n, actEps)
}
