package family

import "math"

// Microbatch is the data of one microbatch on the host; all slices but Cu have one entry a token.
type Microbatch struct {
	IDs, Targets, Positions []int32   // Targets < 0 are ignored
	Weights                 []float32 // of each token's loss; they sum to 1 over the global batch
	Cu                      []int32   // sequence borders, from 0 to the number of tokens
	Keys                    []int64   // identify rows for dropout; nil without
	Draw                    uint64    // what noise of the microbatch is counted from
	// Images of the microbatch, whose features take the places of tokens with id -1.
	Images Images
	Step   int64 // that learns it, for models that learn in phases; 0 for the last phase
	More   More  // what tasks and other modalities read
}

// Inputs are what the microbatch brings beside tokens and labels.
func (mb *Microbatch) Inputs() *Inputs {
	return &Inputs{Rows: len(mb.IDs), IDs: mb.IDs, Cu: mb.Cu, Images: mb.Images, More: mb.More, Targets: mb.Targets,
		Step: mb.Step}
}

// Shift moves tokens, targets and weights k places towards the start of each sequence; what runs past its
// end is ignored, and the weights of the rest are raised so that their sum stays.
func (mb Microbatch) Shift(k int) (ids, targets []int32, weights []float32) {
	n, kept, all := len(mb.IDs), 0.0, 0.0
	ids, targets, weights = make([]int32, n), make([]int32, n), make([]float32, n)
	for s := 0; s+1 < len(mb.Cu); s++ {
		for i := int(mb.Cu[s]); i < int(mb.Cu[s+1]); i++ {
			targets[i] = -100
			if i+k < int(mb.Cu[s+1]) {
				ids[i], targets[i], weights[i] = mb.IDs[i+k], mb.Targets[i+k], mb.Weights[i+k]
				kept += float64(weights[i])
			}
			all += float64(mb.Weights[i])
		}
	}
	for i := range weights {
		weights[i] = float32(float64(weights[i]) * all / max(kept, math.SmallestNonzeroFloat32))
	}
	return
}
