package family

import (
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Answers is what a microbatch brings to a loss over answers, a row for each token: see Objective.
type Answers struct {
	Seq    []int32
	Weight []float32
	More   []float32 // [rows objective.Columns]
}

// NewAnswers are those of a microbatch of rows tokens of no sequence.
func NewAnswers(rows int) *Answers {
	a := &Answers{Seq: make([]int32, rows), Weight: make([]float32, rows),
		More: make([]float32, rows*objective.Columns)}
	for i := range a.Seq {
		a.Seq[i] = -1
	}
	return a
}

// AnswersKey is where Inputs.More has a microbatch's answers, *Answers.
var AnswersKey = NewKey[*Answers]("answers")

// AnswerModality is the modality of models that train by a loss over answers. It adds no shape.
var AnswerModality Modality = answers{}

type answers struct{ shapeless }

// TokenTensors implements Rowed.
func (answers) TokenTensors() []string { return []string{"obj.seq", "obj.weight", "obj.more"} }

// Tensors implements Modality.
func (answers) Tensors(in *Inputs, _ block.Shape) map[string]*tensor.Tensor {
	a := AnswersKey.Of(in.More)
	if a == nil {
		a = NewAnswers(in.Rows)
	}
	return map[string]*tensor.Tensor{"obj.seq": tensor.Of(tensor.I32, a.Seq, len(a.Seq)),
		"obj.weight": tensor.Of(tensor.F32, a.Weight, len(a.Weight)),
		"obj.more":   tensor.Of(tensor.F32, a.More, len(a.Seq), objective.Columns)}
}
