package latent

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// golden is a tiny autoencoder of bench/golden/latents.py, and what diffusers computes with it.
type golden struct {
	dir                        string
	Kind                       string
	Weight                     float64
	Reconstruction, Divergence float64
	t                          *testing.T
	file                       *checkpoint.File
}

// goldens are the names of all, a folder each.
func goldens(t *testing.T) (names []string) {
	dirs, err := os.ReadDir("testdata")
	require.NoError(t, err)
	for _, d := range dirs {
		names = append(names, d.Name())
	}
	require.Len(t, names, 7)
	return names
}

func openGolden(t *testing.T, name string) *golden {
	return openGoldenAt(t, filepath.Join("testdata", name))
}

// openGoldenAt opens one that lies elsewhere.
func openGoldenAt(t *testing.T, dir string) *golden {
	g := &golden{t: t, dir: dir}
	text, err := os.ReadFile(filepath.Join(g.dir, "golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, g))
	g.file, err = checkpoint.OpenFile(filepath.Join(g.dir, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.file.Close()) })
	return g
}

// raw is a tensor's shape, dtype and bytes.
func (g *golden) raw(name string) (checkpoint.Info, []byte) {
	for _, i := range g.file.Tensors() {
		if i.Name == name {
			raw := make([]byte, i.Bytes)
			require.NoError(g.t, g.file.ReadInto(name, 0, i.Bytes, raw))
			return i, raw
		}
	}
	require.Fail(g.t, "no tensor "+name)
	return checkpoint.Info{}, nil
}

// read is a tensor of floats.
func (g *golden) read(name string) *tensor.Tensor {
	i, raw := g.raw(name)
	x := tensor.Make(tensor.F32, i.Shape...)
	tensor.Widen(dtypes[i.DType], raw, x.F32())
	return x
}

// gradients are those of params, of which some have none.
func (g *golden) gradients(params []*grad.Param) map[string][]float32 {
	largest := g.read("largest")
	_, raw := g.raw("gradients")
	names, shapes := []string{}, map[string]int{}
	for _, p := range params {
		names, shapes[p.Name] = append(names, p.Name), tensor.Len(p.Shape)
	}
	slices.Sort(names)
	require.Len(g.t, largest.F32(), len(names))
	out := map[string][]float32{}
	for i, name := range names {
		for range shapes[name] {
			share := float64(int16(binary.LittleEndian.Uint16(raw))) / 32767
			out[name], raw = append(out[name], float32(share*float64(largest.F32()[i]))), raw[2:]
		}
	}
	require.Empty(g.t, raw)
	return out
}

// open is the autoencoder on a backend.
func (g *golden) open(b kernels.Backend) *Autoencoder {
	a, err := Open(g.dir, b)
	require.NoError(g.t, err)
	g.t.Cleanup(func() {
		a.Close()
		require.Zero(g.t, a.run.Pool.Buffers())
	})
	return a
}

// near wants numbers that differ by no more than a share of the largest that is wanted, or of 1.
func near(t *testing.T, want, got []float32, most float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	size := 1.0
	for _, v := range want {
		size = max(size, math.Abs(float64(v)))
	}
	for i, v := range want {
		if d := math.Abs(float64(v) - float64(got[i])); !(d <= most*size) {
			require.Failf(t, what, "[%d] = %g, want %g of at most %g", i, got[i], v, size)
		}
	}
}

// sumsBound bounds float32 sums of some hundred terms through some twenty layers.
const sumsBound = 1e-5

// TestGolden: pixels are encoded and latents decoded as by diffusers, on the definition of the operations and
// on the fast backend.
func TestGolden(t *testing.T) {
	fast := cpu.New(2)
	defer fast.Close()
	for _, name := range goldens(t) {
		for _, b := range []kernels.Backend{ref.New(), fast} {
			openGolden(t, name).compute(b)
		}
	}
}

// compute compares what is encoded and decoded.
func (g *golden) compute(b kernels.Backend) {
	t, a := g.t, g.open(b)
	mean, logVariance, err := a.Encode(g.read("pixels"))
	require.NoError(t, err)
	require.Equal(t, g.read("mean").Shape, mean.Shape)
	near(t, g.read("mean").F32(), mean.F32(), sumsBound, g.dir+" mean")
	near(t, g.read("logvar").F32(), logVariance.F32(), sumsBound, g.dir+" variance")
	pixels, err := a.Decode(g.read("latents"))
	require.NoError(t, err)
	require.Equal(t, g.read("decoded").Shape, pixels.Shape)
	near(t, g.read("decoded").F32(), pixels.F32(), sumsBound, g.dir+" decoded")
}

// last is a tensor with channels last.
func last(x *tensor.Tensor) *tensor.Tensor {
	shape := append(append([]int{x.Shape[0]}, x.Shape[2:]...), x.Shape[1])
	y := tensor.Make(tensor.F32, shape...)
	places, c := tensor.Len(x.Shape[2:]), x.Shape[1]
	for i, v := range x.F32() {
		y.F32()[(i/places/c*places+i%places)*c+i/places%c] = v
	}
	return y
}

// trained is a trace of the golden's loss, with what it gives.
type trained struct {
	loss  float64
	grads map[string]*tensor.Tensor
	tr    *grad.Trace
}

// train runs the loss and its backward, recorded as f does.
func (g *golden) train(b kernels.Backend, o grad.Options, f func(m *Model, r *block.Rec,
	x *grad.Value)) trained {
	a := g.open(b)
	o.DType = tensor.F32
	r := &block.Rec{T: grad.NewTape(o)}
	pixels, noise := last(g.read("pixels")), last(g.read("noise"))
	f(a.Model, r, r.T.Data("pixels", tensor.F32, pixels.Shape...))
	tr := r.T.Finish()
	run := a.run
	run.Seed, run.Grads = 1, map[string]*tensor.Tensor{}
	frame := run.NewFrame(tr, map[string]*tensor.Tensor{"pixels": pixels, "vae.noise": noise}, nil, nil)
	params := map[string]*tensor.Tensor{}
	for name, p := range run.Params {
		params[join("vae", name)] = p
	}
	run.Params = params
	for _, p := range []grad.Phase{grad.F, grad.B} {
		_, err := run.Step(frame, p, 0, nil)
		require.NoError(g.t, err)
	}
	out := trained{frame.Loss(), map[string]*tensor.Tensor{}, tr}
	for name, d := range run.Grads {
		out.grads[name] = tensor.Of(tensor.F32, slices.Clone(d.F32()), d.Shape...)
		d.Release()
	}
	frame.Close()
	run.Close()
	run.Grads = map[string]*tensor.Tensor{}
	return out
}

// of is the golden's loss.
func (g *golden) of() Loss {
	return Loss{Kind: map[string]int{"l2": kernels.SquaredLoss, "l1": kernels.AbsoluteLoss}[g.Kind],
		KL: g.Weight, Drawn: true}
}

// TestLoss: the loss of drawn latents and the gradient of every parameter are those of diffusers and PyTorch.
func TestLoss(t *testing.T) {
	fast := cpu.New(2)
	defer fast.Close()
	for _, name := range goldens(t) {
		openGolden(t, name).learn(fast)
	}
}

// learn compares the loss and its gradients.
func (g *golden) learn(b kernels.Backend) {
	got := g.train(b, grad.Options{}, func(m *Model, r *block.Rec, x *grad.Value) {
		m.Loss(r, "vae", x, g.of())
	})
	require.InEpsilon(g.t, g.Reconstruction+g.Divergence, got.loss, sumsBound, g.dir)
	params := make([]*grad.Param, len(got.tr.Params))
	for i, p := range got.tr.Params {
		plain := *p
		plain.Name = p.Name[len("vae."):]
		params[i] = &plain
	}
	want, all := g.gradients(params), float32(0)
	for _, l := range want {
		all = max(all, slices.Max(l), -slices.Min(l))
	}
	for param, l := range want {
		d := got.grads[join("vae", param)]
		require.NotNil(g.t, d, param)
		// Those of biases before a softmax over keys or a norm of one channel are 0: sums that cancel.
		most := 1e-4*float64(max(slices.Max(l), -slices.Min(l))) + 1e-6*float64(all)
		for i, v := range l {
			require.InDelta(g.t, v, d.F32()[i], most, "%s: %s[%d]", g.dir, param, i)
		}
	}
}
