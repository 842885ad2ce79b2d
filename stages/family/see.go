package family

import (
	"fmt"
	"maps"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// See lets the tokens of an image see each other both ways, where layers have SeesImages.
func (m *Model) See() {
	for i, x := range m.Modalities {
		if v, ok := x.(images); ok {
			m.Modalities[i] = seeing{v}
		}
	}
}

// seeing are images whose tokens see each other both ways. As positions on two axes, every query has the last
// key that it sees and its own row, every key its row twice.
type seeing struct{ images }

// The tensors of what is seen, a row a token.
const seenBy, seenRows = "see.queries", "see.keys"

// TokenTensors implements Rowed.
func (p seeing) TokenTensors() []string {
	return append(p.images.TokenTensors(), seenBy, seenRows)
}

// Tensors implements Modality.
func (p seeing) Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor {
	out := p.images.Tensors(in, s)
	if s.Dim(block.Patches) == 0 {
		return out
	}
	maps.Copy(out, seen(in.Rows, &in.Images))
	return out
}

// SeePrompts lets what is seen and asked see each other both ways, where layers have SeesImages: the tokens
// of a sequence with images up to the one that predicts the first token of the answer, or as many as
// PromptsKey says. A sequence of text alone is causal, as where it is served, whatever lies beside it.
func (m *Model) SeePrompts() {
	for i, x := range m.Modalities {
		if v, ok := x.(images); ok {
			m.Modalities[i] = prompted{seeing{v}}
		}
	}
}

// PromptsKey is where Inputs.More has how many tokens of each sequence with images see each other both ways,
// []int32, where that does not follow from what is learnt.
var PromptsKey = NewKey[[]int32]("prompts")

// prompted are images in sequences whose prompts see each other both ways.
type prompted struct{ seeing }

// Tensors implements Modality.
func (p prompted) Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor {
	out := p.images.Tensors(in, s)
	if s.Dim(block.Patches) == 0 {
		return out
	}
	given := PromptsKey.Of(in.More)
	var spans [][2]int32
	for i := 0; i+1 < len(in.Cu); i++ {
		from, to := in.Cu[i], in.Cu[i+1]
		if !in.Images.within(from, to) {
			continue
		}
		if i < len(given) {
			spans = append(spans, [2]int32{from, min(from+given[i], to)})
			continue
		}
		end := from
		for end < to && (in.Targets == nil || in.Targets[end] < 0) {
			end++
		}
		spans = append(spans, [2]int32{from, min(end+1, to)})
	}
	maps.Copy(out, seenIn(in.Rows, spans))
	return out
}

// within reports whether an image has a place among the tokens from one on up to another.
func (p *Images) within(from, to int32) bool {
	for _, g := range p.Grids {
		for _, at := range g.Spans {
			if from <= at[0] && at[0] < to {
				return true
			}
		}
	}
	return false
}

// seen are the tensors of rows tokens among which images have their places.
func seen(rows int, pics *Images) map[string]*tensor.Tensor {
	var spans [][2]int32
	for _, g := range pics.Grids {
		spans = append(spans, g.Spans...)
	}
	return seenIn(rows, spans)
}

// seenIn are the tensors of rows tokens, of which those of each span see each other both ways.
func seenIn(rows int, spans [][2]int32) map[string]*tensor.Tensor {
	queries, keys := tensor.Make(tensor.I32, rows, 3), tensor.Make(tensor.I32, rows, 3)
	for i := range rows {
		copy(queries.I32()[3*i:], []int32{int32(i), int32(i), 0})
		copy(keys.I32()[3*i:], []int32{int32(i), int32(i), 0})
	}
	for _, span := range spans {
		for at := span[0]; at < span[1]; at++ {
			queries.I32()[3*at] = span[1] - 1
		}
	}
	return map[string]*tensor.Tensor{seenBy: queries, seenRows: keys}
}

// Sight is what the layers read of rows tokens, the first of a sequence, among which images have their places,
// beside Vision.Data: nil for a model whose tokens see what comes before them alone.
func (m *Model) Sight(rows int, pics *Images) map[string]*tensor.Tensor {
	if m.Spec.Sees == nil || pics.Patches() == 0 {
		return nil
	}
	for _, x := range m.Modalities {
		if _, whole := x.(prompted); whole {
			return seenIn(rows, [][2]int32{{0, int32(rows)}})
		}
	}
	return seen(rows, pics)
}

// SeesImages lets queries see the whole of their own image, as far as a window reaches back.
func SeesImages(r *block.Rec, c *grad.AttentionConfig) {
	if r.Shape.Dim(block.Patches) == 0 {
		return
	}
	near := []int32{-1, 0, int32(c.Window) - 1, -1, -1, -1}
	c.PosQ = r.T.Data(seenBy, tensor.I32, r.Shape.Rows, 3)
	c.PosK = r.T.Data(seenRows, tensor.I32, r.Shape.Rows, 3)
	c.Near = r.T.ConstI32(fmt.Sprintf("see.%d", c.Window), near)
	c.Causal, c.Window = false, 0
}
