package run

import (
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
)

// openTeacher readies the model whose logits a run learns.
func (d *data) openTeacher() error {
	ref, err := d.r.reference()
	if err != nil {
		return err
	}
	d.teacher, err = ref.Open()
	return err
}

// teach puts a teacher's logits of its rows into a microbatch. The caller holds the lock of reading.
func teach(g *sample.Generator, mb *family.Microbatch) error {
	z, err := g.AllLogits(mb.IDs, mb.Positions, mb.Cu)
	if err != nil {
		return err
	}
	mb.More = map[string]any{family.TeacherKey: z}
	return nil
}
