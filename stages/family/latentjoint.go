package family

import (
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// The rows that lie together in a sample: its captions, its state and its latents.

// joint adds what captions need that are a stream of rows of their own: rows are those of captions and
// latents sequence by sequence, at and pos the levels and places of captions' rows.
func (p latents) joint(in *Inputs, s block.Shape, out map[string]*tensor.Tensor, rows, at, pos []int32) {
	n := Captions(s)
	cu := make([]int32, len(in.Cu))
	for i, border := range out["dif.text.cu"].I32() {
		cu[i] = border + in.Cu[i]
	}
	all := n + in.Rows
	if p.d.Sight != nil && p.d.Sight.Token {
		all += Levels(s)
		for i := range cu { // a row for the state of each sample before
			for _, x := range p.items(in) {
				if x.From < in.Cu[i] {
					cu[i]++
				}
			}
		}
	}
	for len(rows) < all {
		rows = append(rows, -1)
	}
	if all > n+in.Rows {
		p.chunks(in, cu, out)
	}
	for len(at) < n {
		at, pos = append(at, -1), append(pos, 0, 0, 0)
	}
	out["dif.joint"], out["dif.joint.cu"] = tensor.Of(tensor.I32, rows, all), tensor.Of(tensor.I32, cu, len(cu))
	out["dif.text.at"], out["dif.text.pos"] = tensor.Of(tensor.I32, at, n), tensor.Of(tensor.I32, pos, n, 3)
}

// chunks gives what actions read that attend to captions and states alone: borders of these, sequence by
// sequence, of which cu are those with actions, and the place of each action in its chunk.
func (p latents) chunks(in *Inputs, cu []int32, out map[string]*tensor.Tensor) {
	told, step := make([]int32, len(cu)), tensor.Make(tensor.I32, in.Rows, 3)
	for i, border := range cu {
		told[i] = border - in.Cu[i]
	}
	for _, x := range p.items(in) {
		for k := range x.Tokens() {
			for a := range 3 {
				step.I32()[3*(int(x.From)+k)+a] = int32(k)
			}
		}
	}
	out["dif.told.seq"], out["dif.step"] = tensor.Of(tensor.I32, told, len(told)), step
}

// told lists the rows of captions and of states that states attend to, and their places. A level that no
// sample has sees its own row alone.
func (p latents) told(in *Inputs, s block.Shape, out map[string]*tensor.Tensor) {
	n, borders, at := Captions(s), []int32{0}, int32(0)
	var rows []int32
	places := tensor.Make(tensor.I32, Levels(s), 3)
	items := p.items(in)
	for g := range Levels(s) {
		if g < len(items) {
			for range p.rows(&items[g]) {
				rows = append(rows, at)
				at++
			}
			for a := range 3 {
				places.I32()[3*g+a] = int32(p.rows(&items[g]))
			}
		}
		rows = append(rows, int32(n+g))
		borders = append(borders, int32(len(rows)))
	}
	for len(rows) < n+Levels(s) {
		rows = append(rows, -1)
	}
	out["dif.told"], out["dif.told.cu"] = tensor.Of(tensor.I32, rows, len(rows)),
		tensor.Of(tensor.I32, borders, len(borders))
	out["dif.state.pos"] = places
	if !p.d.Joint { // for queries that are actions
		seq, g := []int32{0}, 0
		for i := range len(in.Cu) - 1 {
			if g < len(items) && items[g].From == in.Cu[i] {
				g++
			}
			seq = append(seq, borders[g])
		}
		out["dif.told.seq"] = tensor.Of(tensor.I32, seq, len(seq))
	}
}
