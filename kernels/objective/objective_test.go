package objective

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawnRows are rows of two pairs with prompts, of log-probabilities or of scores, and a row of padding.
func drawnRows(rng *rand.Rand, score bool) *Rows {
	r := &Rows{}
	for s := range int32(4) {
		n := 5 + rng.IntN(6)
		for i := range n {
			r.Seq, r.LogP = append(r.Seq, s), append(r.LogP, float32(-rng.ExpFloat64()))
			w := float32(0)
			if i >= 3 && !score || score && i == n-1 {
				w = 0.5
			}
			r.Weight = append(r.Weight, w)
			near := r.LogP[len(r.LogP)-1] + rng.Float32() - 0.5
			r.More = append(r.More, float32(-rng.ExpFloat64()), rng.Float32(), float32(s/2)*0.6-0.3, near,
				float32(s)-1.4, rng.Float32()-1, near+0.3, float32(i%2))
		}
	}
	r.Seq, r.LogP, r.Weight = append(r.Seq, -1), append(r.LogP, -3), append(r.Weight, 0)
	r.More = append(r.More, make([]float32, Columns)...)
	return r
}

// TestGradients: every loss's derivatives are those of finite differences, and a row of no sequence has none.
func TestGradients(t *testing.T) {
	for _, name := range Known() {
		l := Lookup(name)
		require.Same(t, l, Numbered(l.Number()))
		if l.Of == nil {
			continue // see TestDivergences and TestContrast
		}
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 1))
			r := drawnRows(rng, l.Score)
			p := Params{Beta: 0.3, Gamma: 0.5, Smoothing: 0.1, Text: 0.2, Center: 0.05, ClipLow: 0.2,
				ClipHigh: 0.3, KL: 0.1, Desirable: 1.2, Undesirable: 0.7,
				Value: 0.3, ClipValue: 0.4}
			if l.Judged { // nobody learns the text of bad answers
				p.Text = 0
			}
			grad := make([]float64, len(r.LogP))
			l.Of(&p, r, grad)
			require.Zero(t, grad[len(grad)-1], "%s: padding", name)
			for i, x := range r.LogP {
				if l.Judged && r.Seq[i]%2 == 1 { // tells how far the policy is, without a gradient
					require.Zero(t, grad[i], name)
					continue
				}
				const h = 1.0 / 1024
				r.LogP[i] = x + h
				up := l.Of(&p, r, make([]float64, len(grad)))
				r.LogP[i] = x - h
				down := l.Of(&p, r, make([]float64, len(grad)))
				r.LogP[i] = x
				middle := l.Of(&p, r, make([]float64, len(grad)))
				if l.Held && !l.Judged || math.Abs(up-2*middle+down) > 4*h*h*(1+math.Abs(middle)) {
					continue // not its derivative, or a kink within reach
				}
				if want := (up - down) / (2 * h); math.Abs(want-grad[i]) > 2e-4*(1+math.Abs(want)) {
					t.Fatalf("%s, seed %d, row %d: %g, differences say %g", name, seed, i, grad[i], want)
				}
			}
		}
	}
}

// TestEqual: where the policy is the reference, DPO's loss is ln 2 to the last bit.
func TestEqual(t *testing.T) {
	r := drawnRows(rand.New(rand.NewPCG(3, 3)), false)
	for i, x := range r.LogP {
		r.More[i*Columns+Reference] = x
	}
	for _, name := range []string{"dpo", "dpo_norm"} {
		require.Equal(t, math.Ln2, Lookup(name).Of(&Params{Beta: 0.1}, r, make([]float64, len(r.LogP))),
			name)
	}
}

// TestParams: numbers of a file come through a tensor as they were written.
func TestParams(t *testing.T) {
	p := Params{Beta: 0.1, Gamma: 1.4, Smoothing: 0.01, Text: 0.3, Center: 1e-7, ClipLow: 3e-4,
		ClipHigh: 4e-4, KL: 0.04, Desirable: 1.33, Undesirable: 0.75, Discount: 0.99, Lambda: 0.95,
		Value: 0.1, ClipValue: 0.2, Mix: 0.5, Temperature: 0.05, Pooling: 1}
	require.Equal(t, p, ParamsOf(p.Vector()))
}
