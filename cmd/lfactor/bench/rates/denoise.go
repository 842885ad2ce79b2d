package rates

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/latent"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/topology/machine"
)

// captionRows are those of a caption of the bench for models that read it as long as it is.
const captionRows = 77

// denoises sets what a bench trains a model of diffusion by: the squared error of its velocity.
func denoises(m *family.Model) {
	if !m.Task().Levels {
		return
	}
	target, ok := noise.Lookup("flow_prediction")
	if !ok {
		panic("rates: no target flow_prediction")
	}
	m.Denoiser.Process = family.Process{Target: target, Loss: kernels.SquaredLoss}
}

// squarest are the height and width, as near to each other as they can be, of n tokens.
func squarest(n int) (h, w int) {
	h = int(math.Sqrt(float64(n)))
	for n%h != 0 {
		h--
	}
	return h, n / h
}

// latents are random latents and captions for the sequences of a microbatch.
func (s *Step) latents(mb *family.Microbatch, r *rand.Rand) {
	d := s.family.Denoiser
	numbers := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	h, w := squarest(s.Seq)
	var items []family.Encoded
	for _, from := range mb.Cu[:len(mb.Cu)-1] {
		e := family.Encoded{From: from, Grid: [3]int{1, h, w}, X0: numbers(s.Seq * d.Width()),
			Noise: numbers(s.Seq * d.Width()), Level: &noise.Level{Alpha: 0.5, Sigma: 0.5, Time: 500}}
		if d.Texts > 0 {
			rows := d.TextRows
			if rows == 0 {
				rows = captionRows
			}
			e.Text, e.Pool = numbers(rows*d.Texts), numbers(d.Pooled)
		}
		items = append(items, e)
	}
	mb.More = family.EncodedKey.With(mb.More, items)
}

// Encode is an autoencoder's forward that is timed: pixels become latents.
type Encode struct {
	Model, Size    string // folder with config.json, and frames×height×width
	Threads, Times int
}

// EncodeResult is what bench/diffusion.py reads.
type EncodeResult struct {
	Seconds []float64 `json:"seconds"`
	Median  float64   `json:"median"`
	PeakRSS int64     `json:"peak_rss"`
	State   int64     `json:"state_bytes"` // of the weights in float32
}

// Measure encodes random pixels with random weights.
func (e *Encode) Measure() (res EncodeResult, err error) {
	size, err := configs.ParseSize(e.Size)
	if err != nil {
		return res, exit.Usagef("--size %s: %v", e.Size, err)
	}
	if e.Threads < 1 || e.Times < 1 {
		return res, exit.Usagef("--threads and --times want positive numbers")
	}
	c, err := latent.ReadFile(filepath.Join(e.Model, "config.json"))
	if err != nil {
		return res, err
	}
	m := c.Model()
	b, err := kernels.Open(kernels.CPU, kernels.Options{Threads: e.Threads})
	if err != nil {
		return res, err
	}
	defer kernels.Close(b)
	r := rand.New(rand.NewPCG(1, 1))
	a, err := m.Random(b, func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(0.02 * r.NormFloat64())
		}
		return v
	})
	if err != nil {
		return res, err
	}
	defer a.Close()
	shape := []int{1, m.In, size[1], size[2]}
	if m.Frames > 0 {
		shape = []int{1, m.In, size[0], size[1], size[2]}
	}
	pixels := tensor.Make(tensor.F32, shape...)
	for i := range pixels.F32() {
		pixels.F32()[i] = float32(2*r.Float64() - 1)
	}
	debug.FreeOSMemory()
	for i := range e.Times + 1 {
		began := time.Now()
		if _, _, err := a.Encode(pixels); err != nil {
			return res, fmt.Errorf("--size %s: %w", e.Size, err)
		}
		if i > 0 { // one warms up
			res.Seconds = append(res.Seconds, time.Since(began).Seconds())
		}
	}
	sorted := slices.Sorted(slices.Values(res.Seconds))
	res.Median, res.PeakRSS, res.State = sorted[len(sorted)/2], machine.PeakRSS(), 4*m.Count()
	return res, nil
}
