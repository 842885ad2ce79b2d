package fit

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// Precisions are the dtypes by their names in run files.
// In the words of the field: mixed precision.
var Precisions = map[string]tensor.DType{"fp32": tensor.F32, "bf16": tensor.BF16, "fp16": tensor.F16}

// Recomputes are the policies of recomputation by their names in run files.
var Recomputes = map[string]grad.Recompute{"none": grad.RecomputeNone, "selective": grad.RecomputeSelective,
	"full": grad.RecomputeFull}

// ComponentPlan is what a component of a composed model may have of its own.
type ComponentPlan struct {
	DType     tensor.DType // of activations and model parameters
	Recompute grad.Recompute
}

// Components is what the parts of a composed model have of their own; nil where all are alike.
func Components(r *configs.Run) func(string) ComponentPlan {
	own := map[string]ComponentPlan{}
	for name, keys := range map[string][2]string{family.Encoder: {r.Train.EncoderPrecision, r.Plan.Encoder.Recompute},
		family.Projector: {r.Train.ProjectorPrecision, r.Plan.ProjRecompute}, family.Foundation: {same, same}} {
		for i, all := range []string{r.Train.Precision, r.Plan.Recompute} {
			if keys[i] == same {
				keys[i] = all
			}
		}
		own[name] = ComponentPlan{DType: Precisions[keys[0]], Recompute: Recomputes[keys[1]]}
	}
	if own[family.Encoder] == own[family.Foundation] && own[family.Projector] == own[family.Foundation] {
		return nil
	}
	return func(name string) ComponentPlan { return own[name] }
}
