package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestLow: panels of a kept operand lie in fewer bytes where its numbers allow it, whatever their form, and
// products have the bits of those with an operand that is not kept, on every level of instructions, for any
// number of rows; one number that does not fit leaves the operand in float32.
func TestLow(t *testing.T) {
	for _, level := range Levels() {
		t.Run(level, func(t *testing.T) {
			t.Setenv("LFACTOR_CPU", level)
			b, plain := New(2), New(2)
			defer b.Close()     //nolint:errcheck // it ends threads
			defer plain.Close() //nolint:errcheck // likewise
			for _, s := range [][2]int{{40, 64}, {2100, 96}, {65, 1536}, {33, 576}} {
				for form := lowNone; form <= lowCodes; form++ {
					rng := rand.New(rand.NewPCG(uint64(form), uint64(s[0])))
					w := inForm(rng, form, s[0], s[1])
					b.Keep(w)
					for _, rows := range []int{1, 2, 3, 8, 13, 37, 300} {
						x := inForm(rng, lowNone, rows, s[1])
						require.Equal(t, product3(plain, x, w, nil), product3(b, x, w, nil),
							"%v %v, %d rows", form, s, rows)
						bias := inForm(rng, lowNone, 1, s[0])
						bias.Shape = bias.Shape[1:]
						require.Equal(t, product3(plain, x, w, bias), product3(b, x, w, bias), "%v %v, bias",
							form, s)
					}
					if b.k.low != nil {
						require.Equal(t, form, b.lowFormOf(rowMajor(w), s[0], s[1]))
						w.F32()[len(w.F32())-1] = 0.3
						b.Changed()
						require.Equal(t, lowNone, b.lowFormOf(rowMajor(w), s[0], s[1]))
					}
					b.Forget(w)
				}
			}
			require.Empty(t, b.kept.low)
			require.Empty(t, b.kept.lowPanels)
		})
	}
}

// inForm is a matrix of numbers that have a form.
func inForm(rng *rand.Rand, form lowForm, n, k int) *tensor.Tensor {
	x := tensor.Make(tensor.F32, n, k)
	v := x.F32()
	for i := range v {
		v[i] = rng.Float32() - 0.5
	}
	switch form {
	case lowHalf, lowBrain:
		d := map[lowForm]tensor.DType{lowHalf: tensor.F16, lowBrain: tensor.BF16}[form]
		raw := make([]byte, 2*len(v))
		tensor.Narrow(d, v, raw)
		tensor.Widen(d, raw, v)
	case lowCodes:
		for i := range v {
			if i%codeGroup == 0 {
				raw, scale := make([]byte, 2), []float32{rng.Float32() / 64}
				tensor.Narrow(tensor.F16, scale, raw)
				tensor.Widen(tensor.F16, raw, scale)
				for j := range codeGroup {
					v[i+j] = float32(rng.IntN(255)-127) * scale[0]
				}
				if i%3 == 0 { // the greatest has another code
					v[i] = -128 * scale[0]
				}
				if i%7 == 0 {
					clear(v[i : i+codeGroup])
				}
			}
		}
	}
	return x
}

func product3(b *Backend, x, w, bias *tensor.Tensor) []byte {
	y := tensor.Make(x.DType, x.Shape[0], w.Shape[0])
	c := &kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{y}}
	if bias != nil {
		c.In = append(c.In, bias)
	}
	b.Run(c)
	b.Sync()
	return y.Bytes()
}
