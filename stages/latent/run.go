package latent

import (
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Names of what a trace reads and gives.
const (
	inPort       = "in"
	outPort      = "out"
	variancePort = "variance"
)

// Encode makes latents of pixels [n In h w] or [n In t h w] in float32: means and logarithms of variances,
// which are clamped to -30 … 20, each [n Latent (t') h' w']. What the shape must be, FitsPixels says. The
// other error is a *tensor.BudgetError.
func (a *Autoencoder) Encode(pixels *tensor.Tensor) (mean, logVariance *tensor.Tensor, err error) {
	return a.encoded(pixels, Split)
}

// encoded is Encode with something else made of the moments: two values of z channels at each place.
func (a *Autoencoder) encoded(pixels *tensor.Tensor, made func(r *block.Rec,
	moments *grad.Value) (first, second *grad.Value)) (first, second *tensor.Tensor, err error) {
	if err := a.FitsPixels(pixels.Shape); err != nil {
		return nil, nil, err
	}
	out := []*tensor.Tensor{tensor.Make(tensor.F32, a.latentsOf(pixels.Shape)...),
		tensor.Make(tensor.F32, a.latentsOf(pixels.Shape)...)}
	err = a.frames(pixels, a.Frames, 1, out, func(r *block.Rec, w way, x *grad.Value) {
		one, two := made(r, run(r, a.encoder(w, ""), x))
		r.T.Output(outPort, channelsSecond(r, one))
		r.T.Output(variancePort, channelsSecond(r, two))
	})
	if err != nil {
		return nil, nil, err
	}
	return out[0], out[1], nil
}

// Decode makes pixels [n Out (t) h w] of latents [n Latent (t') h' w'] in float32, as Encode gives them: not
// scaled. What the shape must be, FitsLatents says. The other error is a *tensor.BudgetError.
func (a *Autoencoder) Decode(latents *tensor.Tensor) (pixels *tensor.Tensor, err error) {
	if err := a.FitsLatents(latents.Shape); err != nil {
		return nil, err
	}
	pixels = tensor.Make(tensor.F32, a.pixelsOf(latents.Shape)...)
	err = a.frames(latents, 1, a.Frames, []*tensor.Tensor{pixels}, func(r *block.Rec, w way, x *grad.Value) {
		r.T.Output(outPort, channelsSecond(r, run(r, a.decoder(w, ""), x)))
	})
	if err != nil {
		return nil, err
	}
	return pixels, nil
}

// channelsLast and channelsSecond bring channels from diffusers' place to the tape's, and back.
func channelsLast(r *block.Rec, x *grad.Value) *grad.Value {
	order := []int{0}
	for a := 2; a < len(x.Shape); a++ {
		order = append(order, a)
	}
	return r.T.Permute(x, append(order, 1)...)
}

func channelsSecond(r *block.Rec, x *grad.Value) *grad.Value {
	order := []int{0, len(x.Shape) - 1}
	for a := 1; a < len(x.Shape)-1; a++ {
		order = append(order, a)
	}
	return r.T.Permute(x, order...)
}

// frames records what f gives of in, a picture or the frames of a clip at once or in chunks, and puts the
// results into out in order. A frame of latents stands for so many frames of in and of out behind the first.
func (a *Autoencoder) frames(in *tensor.Tensor, from, to int, out []*tensor.Tensor,
	f func(r *block.Rec, w way, x *grad.Value)) error {
	if a.Frames == 0 {
		return a.step(in, out, way{}, map[string]*tensor.Tensor{}, f)
	}
	all := 1 + (in.Shape[2]-1)/from
	if a.Chunk < 1 || a.Chunk >= all {
		return a.step(in, out, way{}, map[string]*tensor.Tensor{}, f)
	}
	handed := map[string]*tensor.Tensor{}
	defer release(handed)
	for lo := 0; lo < all; lo += a.Chunk {
		hi := min(all, lo+a.Chunk)
		part := cut(in, frameAt(lo, from), frameAt(hi, from))
		parts := make([]*tensor.Tensor, len(out))
		for i, o := range out {
			shape := append([]int(nil), o.Shape...)
			shape[2] = frameAt(hi, to) - frameAt(lo, to)
			parts[i] = tensor.Make(tensor.F32, shape...)
		}
		if err := a.step(part, parts, way{chunked: true, later: lo > 0}, handed, f); err != nil {
			return err
		}
		for i, p := range parts {
			paste(out[i], p, frameAt(lo, to))
		}
	}
	return nil
}

func release(m map[string]*tensor.Tensor) {
	for name, t := range m {
		t.Release()
		delete(m, name)
	}
}

// cut is the frames [from, to) of x [n c t h w]; paste puts frames into x from a place on.
func cut(x *tensor.Tensor, from, to int) *tensor.Tensor {
	shape := append([]int(nil), x.Shape...)
	shape[2] = to - from
	y := tensor.Make(tensor.F32, shape...)
	planes, each := x.Shape[0]*x.Shape[1], x.Shape[3]*x.Shape[4]
	for p := range planes {
		copy(y.F32()[p*shape[2]*each:][:shape[2]*each], x.F32()[(p*x.Shape[2]+from)*each:])
	}
	return y
}

func paste(x, part *tensor.Tensor, from int) {
	planes, each := x.Shape[0]*x.Shape[1], x.Shape[3]*x.Shape[4]
	n := part.Shape[2] * each
	for p := range planes {
		copy(x.F32()[(p*x.Shape[2]+from)*each:][:n], part.F32()[p*n:])
	}
}

// step records f for one chunk and runs it. handed has the frames of the chunk before, and then those of this one.
func (a *Autoencoder) step(in *tensor.Tensor, out []*tensor.Tensor, w way, handed map[string]*tensor.Tensor,
	f func(r *block.Rec, w way, x *grad.Value)) error {
	r := &block.Rec{T: grad.NewTape(grad.Options{DType: tensor.F32, NoGrad: true})}
	f(r, w, channelsLast(r, r.T.Data(inPort, tensor.F32, in.Shape...)))
	tr := r.T.Finish()
	x, err := a.run.Pool.New(inPort, tensor.F32, in.Shape...)
	if err != nil {
		return err
	}
	kernels.Write(x, in.Bytes())
	data := map[string]*tensor.Tensor{inPort: x}
	for name, t := range handed {
		data[name] = t
		delete(handed, name)
	}
	frame := a.run.NewFrame(tr, data, nil, nil)
	defer a.run.Close() // the next trace has constants of its own
	if _, err := a.run.Step(frame, grad.F, 0, nil); err != nil {
		frame.Drop()
		return err
	}
	for name, t := range frame.Outputs() {
		if strings.HasPrefix(name, past("")) {
			handed[name] = t
			continue
		}
		to := out[0]
		if name == variancePort {
			to = out[1]
		}
		kernels.Read(a.run.Backend, to.Bytes(), t)
		t.Release()
	}
	frame.Close()
	return nil
}
