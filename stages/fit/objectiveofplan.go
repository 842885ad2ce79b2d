package fit

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// Sensitive tells what a plan would change of what a run minimises: some losses of the router, bounds and scales are of
// the rows that a rank has at once, and no plan that does so is proposed.
type Sensitive struct {
	Chunks, Context []string // what plan.chunk_size and plan.cp change
}

// SensitiveTo is what of a run's objective depends on how rows are cut.
func SensitiveTo(c *configs.Config, m *family.Model) (s Sensitive) {
	t := &c.Run.Train
	if m.Spec.Mixes() {
		pooled := t.Router.Loss == "model" && family.Mixture.Of(m.Config).RouterLogits
		if pooled || t.Router.Loss != "model" && t.Router.Loss != "none" {
			s.Chunks = append(s.Chunks, "train.router.loss is taken of each chunk by itself")
		}
		if t.Router.Capacity > 0 {
			const bound = "train.router.capacity bounds the rows that an expert takes of "
			s.Chunks = append(s.Chunks, bound+"each chunk")
			s.Context = append(s.Context, bound+"each rank's rows")
		}
	}
	if strings.HasPrefix(t.LowPrecision, "tensor") || t.LowPrecision == "nvfp4" {
		const scale = " has a scale for all rows of a product, which is that of "
		s.Chunks = append(s.Chunks, "train.low_precision = "+t.LowPrecision+scale+"each chunk's")
		s.Context = append(s.Context, "train.low_precision = "+t.LowPrecision+scale+"each rank's")
	}
	return s
}

// sameObjective notes what a plan changes of what is minimised.
func (r rules) sameObjective() {
	p, s := &r.c.Run.Plan, SensitiveTo(r.c, r.m)
	for _, x := range []struct {
		key string
		set bool
		why []string
	}{{"plan.chunk_size", p.ChunkSize > 0, s.Chunks}, {"plan.cp", p.CP > 1, s.Context}} {
		if x.set && x.why != nil {
			r.c.Notices = append(r.c.Notices, x.key+" changes what the run minimises, by up to some hundredths of the loss: "+
				strings.Join(x.why, "; ")+". lfactor plan does not propose it")
		}
	}
}
