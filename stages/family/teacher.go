package family

import (
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// TeacherKey is where Inputs.More has a teacher's logits of a microbatch's rows, [rows vocabulary] float32s.
var TeacherKey = NewKey[[]float32]("teacher")

const teacherData = "obj.teacher"

// TeacherModality is the modality of models that learn from a teacher's logits over a vocabulary. It adds no shape.
func TeacherModality(vocab int) Modality { return teacher{vocab} }

type teacher struct{ vocab int }

// Classes implements Modality.
func (teacher) Classes() int32 { return 1 }

// Class implements Modality.
func (teacher) Class(*Inputs) int32 { return 0 }

// Dims implements Modality.
func (teacher) Dims(int, int32) map[string]int { return nil }

// Planned implements Modality.
func (teacher) Planned(int, map[string]int) int32 { return 0 }

// TokenTensors implements Rowed.
func (teacher) TokenTensors() []string { return []string{teacherData} }

// Tensors implements Modality.
func (m teacher) Tensors(in *Inputs, _ block.Shape) map[string]*tensor.Tensor {
	z := TeacherKey.Of(in.More)
	if z == nil {
		z = make([]float32, in.Rows*m.vocab)
	}
	return map[string]*tensor.Tensor{teacherData: tensor.Of(tensor.F32, z, in.Rows, m.vocab)}
}
