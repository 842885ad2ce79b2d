package family

import (
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// SourcesKey is where Inputs.More has the number of the named source that each row is of, [rows].
var SourcesKey = NewKey[[]int32]("sources")

const sourcesData = "sources"

// ByName has a model's loss be seen by n named sources too, whose numbers microbatches bring.
func (m *Model) ByName(n int) {
	m.Spec.Sources, m.Modalities = n, append(m.Modalities, named{})
}

// named is the modality of models whose loss is seen by sources. It adds no shape.
type named struct{ shapeless }

// TokenTensors implements Rowed.
func (named) TokenTensors() []string { return []string{sourcesData} }

// Tensors implements Modality.
func (named) Tensors(in *Inputs, _ block.Shape) map[string]*tensor.Tensor {
	of := SourcesKey.Of(in.More)
	if of == nil { // of validation data
		of = make([]int32, in.Rows)
	}
	return map[string]*tensor.Tensor{sourcesData: tensor.Of(tensor.I32, of, in.Rows)}
}
