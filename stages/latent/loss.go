package latent

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Loss says what an autoencoder is trained by.
type Loss struct {
	// Kind is kernels.SquaredLoss or kernels.AbsoluteLoss: of decoded pixels and those that were encoded, the
	// mean over all their numbers.
	Kind int
	// KL is the weight of the divergence of latents from standard normal noise: of each sample the sum over
	// its latents, and the mean over samples; 0 leaves it out. diffusers' examples have 1e-6.
	KL float64
	// Drawn decodes a draw of the latents and not their means. The noise is data called name.noise, [n (t')
	// h' w' Latent] in float32.
	Drawn bool
}

// Loss records encoder and decoder under a name, and what pixels x [n (t) h w In] lose between them, which it
// gives and adds to the tape's loss: the reconstruction and, where l has a weight for it, the weighted divergence,
// each [1] in float32, nil for none. x is data. The autoencoder gives as many channels as it takes.
func (m *Model) Loss(r *block.Rec, name string, x *grad.Value, l Loss) (reconstruction, divergence *grad.Value) {
	t := r.T
	mean, logVariance := Split(r, m.Encode(r, name, x))
	z := mean
	if l.Drawn {
		noise := t.Data(join(name, "noise"), tensor.F32, mean.Shape...)
		deviation := t.Act(t.Scale(logVariance, 0.5), kernels.Exp)
		z = t.Add(mean, t.Mul(deviation, t.Cast(noise)))
	}
	y := m.Decode(r, name, z)
	reconstruction = t.PointLoss(y, x, weights(r, x.Shape[0], 1/float64(tensor.Len(y.Shape))), nil, l.Kind, 0)
	t.Loss(reconstruction)
	if l.KL == 0 {
		return reconstruction, nil
	}
	n := mean.Shape[0]
	zero := t.ConstOf("zeros", make([]float32, tensor.Len(mean.Shape)), mean.Shape...)
	divergence = t.Add(t.PointLoss(mean, zero, weights(r, n, l.KL/2/float64(n)), nil, kernels.SquaredLoss, 0),
		t.PointLoss(logVariance, zero, weights(r, n, l.KL/float64(n)), nil, kernels.VarianceLoss, 0))
	t.Loss(divergence)
	return reconstruction, divergence
}

// weights are those of a loss of n samples, all alike.
func weights(r *block.Rec, n int, each float64) *grad.Value {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(each)
	}
	return r.T.Const("weights", w)
}
