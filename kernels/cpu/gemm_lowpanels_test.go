package cpu

import (
	"math/rand/v2"
	"slices"
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
				for form := lowNone; form <= lowNibbles; form++ {
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
	case lowCodes, lowMoved, lowNibbles:
		group := 32
		if form != lowMoved && n%2 == 0 {
			group = 16
		}
		for i := range slices.Chunk(v, group) {
			inCodes(rng, form, i)
		}
	}
	return x
}

// inCodes makes numbers those of a block as GGUF's: whole numbers times a float16 times one of six bits, less the same.
func inCodes(rng *rand.Rand, form lowForm, v []float32) {
	half := func(most float32) float32 {
		raw, x := make([]byte, 2), []float32{(0.25 + rng.Float32()) * most}
		tensor.Narrow(tensor.F16, x, raw)
		tensor.Widen(tensor.F16, raw, x)
		return x[0] * float32(1+rng.IntN(63))
	}
	scale, offset := half(1./4096), half(1./4096)
	if rng.IntN(4) == 0 {
		offset = float32(rng.IntN(8)) * scale
	}
	if rng.IntN(2) == 0 && form == lowCodes {
		scale = -scale // zeros have a sign
	}
	most := lowForms[form].most
	for j := range v {
		if form == lowCodes {
			v[j] = float32(rng.IntN(255)-127) * scale
		} else {
			v[j] = float32(float64(scale)*float64(rng.IntN(most+1)) - float64(offset))
		}
	}
	switch n := rng.IntN(8); {
	case n == 0:
		clear(v)
	case n < 4 && form == lowCodes: // the greatest has another code
		v[0] = -128 * scale
	case n < 4: // all codes of the form are needed, or not the least one
		v[0], v[1] = 0-offset, float32(float64(scale)*float64(most)-float64(offset))
	case n < 6 && form != lowCodes:
		for j := range v {
			v[j] = float32(float64(scale)*float64(most-rng.IntN(most)) - float64(offset))
		}
	}
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
