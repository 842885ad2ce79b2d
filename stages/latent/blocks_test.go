package latent

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// chain lists all blocks of an autoencoder whose latents are the means.
func chain(m *Model) []Block {
	mean := Block{"mean", func(r *block.Rec, x *grad.Value) *grad.Value {
		mean, _ := Split(r, x)
		return mean
	}}
	return slices.Concat(m.Encoder("vae"), []Block{mean}, m.Decoder("vae"))
}

// compare adds the loss of pixels to the tape.
func compare(r *block.Rec, y, x *grad.Value) {
	each := weights(r, x.Shape[0], 1/float64(tensor.Len(x.Shape)))
	r.T.Loss(r.T.PointLoss(y, x, each, nil, kernels.SquaredLoss, 0))
}

// TestUnits: blocks that are recomputed give the bits of those that are not.
func TestUnits(t *testing.T) {
	for _, name := range goldens(t) {
		g := openGolden(t, name)
		record := func(m *Model, r *block.Rec, x *grad.Value) { compare(r, Units(r, 0, chain(m), x), x) }
		want := g.train(ref.New(), grad.Options{}, record)
		got := g.train(ref.New(), grad.Options{Recompute: grad.RecomputeFull}, record)
		same := g.train(ref.New(), grad.Options{}, func(m *Model, r *block.Rec, x *grad.Value) {
			mean, _ := Split(r, m.Encode(r, "vae", x))
			compare(r, m.Decode(r, "vae", mean), x)
		})
		for _, l := range []trained{got, same} {
			require.Equal(t, want.loss, l.loss)
			require.Len(t, l.grads, len(want.grads))
			for param, d := range want.grads {
				require.Equal(t, d.F32(), l.grads[param].F32(), "%s: %s", name, param)
			}
		}
	}
}

// TestCut: an autoencoder that is cut between any two blocks, each part on a tape of its own, gives the bits
// of one that is not.
func TestCut(t *testing.T) {
	for _, name := range goldens(t) {
		g := openGolden(t, name)
		want := g.train(ref.New(), grad.Options{}, func(m *Model, r *block.Rec, x *grad.Value) {
			compare(r, Units(r, 0, chain(m), x), x)
		})
		c, err := ReadFile(g.dir + "/config.json")
		require.NoError(t, err)
		m := c.Model()
		blocks, pixels := chain(m), last(g.read("pixels"))
		shapes := Shapes(blocks, pixels.Shape...)
		require.Len(t, shapes, len(blocks)+1)
		require.Equal(t, pixels.Shape, shapes[len(blocks)])
		for at := 1; at < len(blocks); at++ {
			loss, grads := g.cut(blocks, at, shapes[at])
			require.Equal(t, want.loss, loss)
			require.Len(t, grads, len(want.grads))
			for param, d := range want.grads {
				require.Equal(t, d.F32(), grads[param].F32(), "%s cut at %s: %s", name, blocks[at].Name,
					param)
			}
		}
	}
}

// cut trains blocks in two parts, whose border has a value of a shape.
func (g *golden) cut(blocks []Block, at int, shape []int) (loss float64, grads map[string]*tensor.Tensor) {
	a := g.open(ref.New())
	pixels, run := last(g.read("pixels")), a.run
	params := run.Params
	run.Params = map[string]*tensor.Tensor{}
	for name, p := range params {
		run.Params[join("vae", name)] = p
	}
	run.Seed = 1
	tape := func(f func(r *block.Rec, x *grad.Value)) *grad.Trace {
		r := &block.Rec{T: grad.NewTape(grad.Options{DType: tensor.F32})}
		f(r, r.T.Data("pixels", tensor.F32, pixels.Shape...))
		return r.T.Finish()
	}
	first := tape(func(r *block.Rec, x *grad.Value) { r.T.Output("y", Units(r, 0, blocks[:at], x)) })
	second := tape(func(r *block.Rec, x *grad.Value) {
		compare(r, Units(r, at, blocks[at:], r.T.Input("y", tensor.F32, shape...)), x)
	})
	step := func(f *grad.Frame, p grad.Phase) {
		_, err := run.Step(f, p, 0, nil)
		require.NoError(g.t, err)
	}
	data := func() map[string]*tensor.Tensor {
		return map[string]*tensor.Tensor{"pixels": tensor.Of(tensor.F32, pixels.F32(), pixels.Shape...)}
	}
	front := run.NewFrame(first, data(), nil, nil)
	step(front, grad.F)
	back := run.NewFrame(second, data(), front.Outputs(), nil)
	step(back, grad.F)
	step(back, grad.B)
	front.Gradients(back.InputGradients())
	loss = back.Loss()
	step(front, grad.B)
	front.Close()
	back.Close()
	run.Close()
	grads = map[string]*tensor.Tensor{}
	for name, d := range run.Grads {
		grads[name] = tensor.Of(tensor.F32, slices.Clone(d.F32()), d.Shape...)
		d.Release()
	}
	run.Grads = map[string]*tensor.Tensor{}
	return loss, grads
}

// Units records blocks as units of recomputation, which are blocks first, first + 1 … of the model that they
// are part of.
func Units(r *block.Rec, first int, blocks []Block, x *grad.Value) *grad.Value {
	for i, b := range blocks {
		r.Start(first + i)
		r.T.Block(first+i, func() { x = b.Record(r, r.T.Cast(x)) })
	}
	return x
}
