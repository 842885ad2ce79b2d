package objective

import "math"

// drawn_gap is how far the sampler is from the trainer: no loss, but what is seen of one in the same pass.
var _ = register(Loss{Name: Gap, Source: "sampler and trainer take the same sums: it is 0", Part: true,
	Held: true, Doc: "max |ℓ − ℓ'| of tokens drawn, with ℓ', by the weights that train on them; it moves nothing",
	Of: func(_ *Params, r *Rows, _ []float64) (most float64) {
		for i := range r.Seq {
			if r.at(i, Fresh) != 0 {
				most = max(most, math.Abs(float64(r.LogP[i])-r.at(i, Old))) // a NaN stays
			}
		}
		return most
	}})

// Gap names it.
const Gap = "drawn_gap"
