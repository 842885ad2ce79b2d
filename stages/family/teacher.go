package family

import (
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// TeacherKey is where Inputs.More has a teacher's logits of a microbatch's rows, [rows vocabulary] float32s.
var TeacherKey = NewKey[[]float32]("teacher")

const teacherData = "obj.teacher"

// TeacherModality is the modality of models that learn from a teacher's logits over a vocabulary. It adds no shape.
func TeacherModality(vocab int) Modality { return teacher{vocab: vocab} }

type teacher struct {
	shapeless
	vocab int
}

// shapeless is what modalities that add no shape have in common.
type shapeless struct{}

// Classes implements Modality.
func (shapeless) Classes() int32 { return 1 }

// Class implements Modality.
func (shapeless) Class(*Inputs) int32 { return 0 }

// Dims implements Modality.
func (shapeless) Dims(int, int32) map[string]int { return nil }

// Planned implements Modality.
func (shapeless) Planned(int, map[string]int) int32 { return 0 }

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
