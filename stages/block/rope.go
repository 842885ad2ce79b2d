package block

import (
	"fmt"
	"math"
)

// Rope holds the parameters of a rotary embedding; Type is Hugging Face's rope_type.
type Rope struct {
	Dim       int // rotated dimensions of a head
	Theta     float64
	Type      string // "", default, linear, dynamic, llama3, yarn
	Factor    float64
	Low, High float64 // llama3: low_freq_factor, high_freq_factor
	Original  int     // original_max_position_embeddings
	Max       int     // max_position_embeddings
	Length    int     // the sequence length trained on (dynamic)
	BetaFast  float64 // yarn
	BetaSlow  float64
	Smooth    bool // yarn: the borders of the ramp are not rounded to whole pairs
	// yarn: the factor on cos and sin, or 0 to compute it from MScale and MScaleAll as transformers does
	AttnFactor, MScale, MScaleAll float64
	// Sections are the frequencies that turn with time, height and width (M-RoPE, arXiv:2409.12191 §2.1);
	// nil for text alone. Interleaved deals them out in turns, as Qwen3-VL does, instead of in runs.
	Sections    []int
	Interleaved bool
	// Turns makes of the sections the position that each frequency turns with, where they are dealt out in
	// yet another way; nil for none.
	Turns func(sections []int) []int32
	// Long and Short divide each frequency (longrope, arXiv:2402.13753): Long where Length exceeds Original.
	Long, Short []float64
	Back        bool // turns by the negative angles
}

// Axes is the position that each of the Dim/2 frequencies turns with: 0 time, 1 height, 2 width.
func (r *Rope) Axes() []int32 {
	if r.Turns != nil {
		return r.Turns(r.Sections)
	}
	axis := make([]int32, r.Dim/2)
	if r.Interleaved {
		for a := 1; a < len(r.Sections); a++ {
			for i := a; i < 3*r.Sections[a] && i < len(axis); i += 3 {
				axis[i] = int32(a)
			}
		}
		return axis
	}
	at := 0
	for a, n := range r.Sections {
		for range n {
			if at < len(axis) {
				axis[at] = int32(a)
			}
			at++
		}
	}
	return axis
}

// Check reports a type that is not known, or a missing factor.
func (r *Rope) Check() error {
	sum := 0
	for _, n := range r.Sections {
		sum += n
	}
	if len(r.Sections) > 0 && (len(r.Sections) != 3 || sum != r.Dim/2) {
		return fmt.Errorf("mrope_section %v: want three numbers that add up to head_dim/2 = %d", r.Sections, r.Dim/2)
	}
	if r.Turns != nil && len(r.Sections) > 0 && len(r.Turns(r.Sections)) != r.Dim/2 {
		return fmt.Errorf("mrope_section %v: as many frequencies are wanted for height as for width", r.Sections)
	}
	switch r.Type {
	case "", "default", "mrope":
		return nil
	case "longrope":
		if len(r.Long) != r.Dim/2 || len(r.Short) != r.Dim/2 {
			return fmt.Errorf("rope_scaling: %d long_factor and %d short_factor; want %d of each, a "+
				"number for each pair of a head that turns", len(r.Long), len(r.Short), r.Dim/2)
		}
		return nil
	case "linear", "dynamic", "llama3", "yarn":
		if r.Factor < 1 {
			return fmt.Errorf("rope_scaling.factor is %g; want at least 1", r.Factor)
		}
		return nil
	}
	return fmt.Errorf("rope_scaling.rope_type %q is unknown; have default, linear, dynamic, llama3, "+
		"yarn, longrope", r.Type)
}

// Edge is the length beyond which dynamic and longrope positions of a sequence change, 0 for other types and where
// Length is beyond it already.
func (r *Rope) Edge() int {
	edge := map[string]int{"dynamic": r.Max, "longrope": r.Original}[r.Type]
	if r.Length > edge {
		return 0
	}
	return edge
}

// Inverse gives the Dim/2 inverse frequencies and the factor on cos and sin, in float32 as transformers computes them.
func (r *Rope) Inverse() (inv []float32, scale float64) {
	inv, scale = make([]float32, r.Dim/2), 1
	theta := r.Theta
	if r.Type == "dynamic" && r.Length > r.Max {
		theta *= math.Pow(r.Factor*float64(r.Length)/float64(r.Max)-(r.Factor-1), float64(r.Dim)/float64(r.Dim-2))
	}
	for i := range inv {
		inv[i] = 1 / float32(math.Pow(theta, float64(float32(2*i)/float32(r.Dim))))
	}
	switch r.Type {
	case "linear":
		for i := range inv {
			inv[i] /= float32(r.Factor)
		}
	case "llama3":
		r.llama3(inv)
	case "longrope":
		scale = r.long(inv)
	case "yarn":
		r.yarn(inv)
		scale = r.attention()
	}
	for i := range inv {
		if r.Back {
			inv[i] = -inv[i]
		}
	}
	return inv, scale
}

// long divides the frequencies by the factors for the length trained on, and gives the factor on cos and sin.
func (r *Rope) long(inv []float32) float64 {
	factors := r.Short
	if r.Length > r.Original {
		factors = r.Long
	}
	for i := range inv {
		power := float32(math.Pow(r.Theta, float64(float32(2*i)/float32(r.Dim))))
		inv[i] = 1 / (float32(factors[i]) * power)
	}
	factor := r.Factor
	if factor == 0 {
		factor = float64(r.Max) / float64(r.Original)
	}
	switch {
	case r.AttnFactor != 0:
		return r.AttnFactor
	case factor <= 1:
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(float64(r.Original)))
}

// attention is YaRN's factor on cos and sin: 0.1·mscale·ln(factor)+1, over the same with mscale_all_dim when
// both are set.
func (r *Rope) attention() float64 {
	switch {
	case r.AttnFactor != 0:
		return r.AttnFactor
	case r.MScale != 0 && r.MScaleAll != 0:
		return r.magnitude(r.MScale) / r.magnitude(r.MScaleAll)
	}
	return r.magnitude(1)
}

// magnitude is YaRN's growth of scores' roots with the factor.
func (r *Rope) magnitude(scale float64) float64 { return 0.1*scale*math.Log(r.Factor) + 1 }

// ScoreScale is the factor on scores of latent attention: the square of YaRN's magnitude by mscale_all_dim,
// as DeepSeek's models have it.
func (r *Rope) ScoreScale() float64 {
	if r.Type == "" || r.Type == "default" || r.MScaleAll == 0 {
		return 1
	}
	m := r.magnitude(r.MScaleAll)
	return m * m
}

// llama3 slows low frequencies by the factor and blends the band between the two wavelengths.
func (r *Rope) llama3(inv []float32) {
	low, high := float64(r.Original)/r.Low, float64(r.Original)/r.High
	for i, f := range inv {
		wave := 2 * math.Pi / float64(f)
		switch {
		case wave > low:
			inv[i] = f / float32(r.Factor)
		case wave >= high:
			s := (float64(r.Original)/wave - r.Low) / (r.High - r.Low)
			inv[i] = float32((1-s)*float64(f)/r.Factor + s*float64(f))
		}
	}
}

// yarn blends interpolated and original frequencies by a ramp over the dimensions (arXiv:2309.00071).
func (r *Rope) yarn(inv []float32) {
	fast, slow := r.BetaFast, r.BetaSlow
	if fast == 0 {
		fast = 32
	}
	if slow == 0 {
		slow = 1
	}
	at := func(rot float64) float64 {
		return float64(r.Dim) * math.Log(float64(r.Original)/(rot*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	lo, hi := at(fast), at(slow)
	if !r.Smooth {
		lo, hi = math.Floor(lo), math.Ceil(hi)
	}
	lo, hi = max(lo, 0), min(hi, float64(r.Dim-1))
	if lo == hi {
		hi += 0.001
	}
	for i, f := range inv {
		ramp := min(1, max(0, (float64(i)-lo)/(hi-lo)))
		inv[i] = float32(float64(f)/r.Factor*ramp + float64(f)*(1-ramp))
	}
}
