package diffusion

import (
	"math"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// noiseTensor is the tensor of a file of noise.
const noiseTensor = "latents"

// ReadNoise reads the noise that pictures begin with from a safetensors file, one for each of so many: a float32
// tensor "latents" of [pictures, channels, (frames,) rows, columns], as pipelines of diffusers take it, of
// deviation 1. Its picture i is that of the i-th caption.
func ReadNoise(file string, pictures int) (Noise, error) {
	f, err := checkpoint.OpenFile(file)
	if err != nil {
		return Noise{}, exit.With(err, exit.Usage)
	}
	defer f.Close() //nolint:errcheck // it was read only
	for _, t := range f.Tensors() {
		if t.Name != noiseTensor {
			continue
		}
		s := t.Shape
		if t.DType != "F32" || len(s) < 4 || len(s) > 5 || s[0] != pictures {
			return Noise{}, exit.Usagef("%s: %s is %v of %v; want float32 of [%d, channels, (frames,) rows, columns], one "+
				"for each picture", file, noiseTensor, s, t.DType, pictures)
		}
		n := Noise{File: file, Shape: [4]int{s[1], 1, s[len(s)-2], s[len(s)-1]}}
		if len(s) == 5 {
			n.Shape[1] = s[2]
		}
		all := tensor.Make(tensor.F32, tensor.Len(s))
		if err := f.ReadInto(noiseTensor, 0, t.Bytes, all.Bytes()); err != nil {
			return Noise{}, err
		}
		n.Values = all.F32()
		for i, v := range n.Values {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return Noise{}, exit.Usagef("%s: number %d of %s is %v", file, i, noiseTensor, v)
			}
		}
		return n, nil
	}
	return Noise{}, exit.Usagef("%s has no tensor %s", file, noiseTensor)
}

// Noise is what pictures begin with in the place of what their seed gives: Shape numbers each, one picture after
// the other. The zero value is none.
type Noise struct {
	File   string
	Shape  [4]int // channels, frames, rows and columns of latents
	Values []float32
}

// fits tells whether it is noise for latents of a shape.
func (n Noise) fits(shape [4]int) error {
	if n.Values != nil && n.Shape != shape {
		return exit.Usagef("%s has noise of %v, and a picture of this size is %v: channels, frames, rows and columns of "+
			"latents", n.File, n.Shape, shape)
	}
	return nil
}

// of is the noise of a picture of n numbers.
func (n Noise) of(picture, size int) []float32 { return n.Values[picture*size : (picture+1)*size] }
