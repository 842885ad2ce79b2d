package noise

import "fmt"

// min_snr is min(SNR, γ) over SNR for ε, over SNR+1 for v, and by itself for the sample.
var _ = RegisterWeight(Weight{Name: "min_snr", Source: "arXiv:2303.09556",
	Of: func(w Weighting, target string, _ Levels) (func(Level) float32, error) {
		gamma := float32(or(w.Gamma, 5))
		switch target {
		case "epsilon":
			return func(l Level) float32 { return min(l.SNR(), gamma) / l.SNR() }, nil
		case "v_prediction":
			return func(l Level) float32 { return min(l.SNR(), gamma) / (l.SNR() + 1) }, nil
		case "sample":
			return func(l Level) float32 { return min(l.SNR(), gamma) }, nil
		}
		return nil, fmt.Errorf("the weight min_snr is of epsilon, v_prediction and sample, and the target is %s: %s",
			target, "take none, sigma_sqrt or cosmap")
	}})
