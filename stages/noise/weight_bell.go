package noise

import "math"

// bell is exp(−2((t−T/2)/T)²) less its least over training's table, with a mean of 1 over the table: the
// weight of Wan's trainers. t is the time of a level, T the number of levels.
var _ = RegisterWeight(Weight{Name: "bell", Source: "DiffSynth-Studio, flow_match.py",
	Of: func(_ Weighting, _ string, all Levels) (func(Level) float32, error) {
		grid := all.Table()
		n := float64(len(grid))
		raw := func(l Level) float64 {
			x := (float64(l.Time) - n/2) / n
			return math.Exp(-2 * x * x)
		}
		low, sum := math.Inf(1), 0.0
		for _, l := range grid {
			low, sum = min(low, raw(l)), sum+raw(l)
		}
		by := n / (sum - float64(n*low))
		return func(l Level) float32 { return float32((raw(l) - low) * by) }, nil
	}})
