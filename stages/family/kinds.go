package family

import (
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// kinds is the modality of models with experts of their own for tokens of images: it tells such tokens from
// those of texts, and adds no shape. Readouts of d, nil for a model without them, are no features of images,
// although they have no ids either.
type kinds struct {
	shapeless
	s *Spec
	d *Denoiser
}

// TokenTensors implements Rowed.
func (kinds) TokenTensors() []string { return []string{block.KindsOf} }

// Tensors implements Modality.
func (k kinds) Tensors(in *Inputs, _ block.Shape) map[string]*tensor.Tensor {
	of := k.s.kindsOf(in.IDs)
	if k.d != nil {
		for _, x := range (latents{k.d}).items(in) {
			from, n := k.d.reads(&x)
			clear(of.I32()[from : from+n])
		}
	}
	return map[string]*tensor.Tensor{block.KindsOf: of}
}

// kindsOf is 1 for features, whose ids are negative, and for the tokens that begin and end images.
func (s *Spec) kindsOf(ids []int32) *tensor.Tensor {
	out := tensor.Make(tensor.I32, len(ids))
	for i, id := range ids {
		if id < 0 || slices.Contains(s.ImageTokens, int(id)) {
			out.I32()[i] = 1
		}
	}
	return out
}

// Kinds are what experts for kinds of tokens read of a sequence's ids, -1 in place of features; nil for a
// model without such experts.
func (m *Model) Kinds(ids []int32) *tensor.Tensor {
	if m.Spec.Experts.Images == nil {
		return nil
	}
	return m.Spec.kindsOf(ids)
}
