package noise

// Target is what a denoiser is trained to give. The functions are pure and in float32; x0, noise, x and out
// have one length.
type Target struct {
	Name   string
	Source string
	// Of is the target at a level, of the clean sample and the noise.
	Of func(l Level, x0, noise []float32) []float32
	// X0 is the clean sample that the denoiser's output means at a level, and Noise the noise.
	X0    func(l Level, x, out []float32) []float32
	Noise func(l Level, x, out []float32) []float32
}
