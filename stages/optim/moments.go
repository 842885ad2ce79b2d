package optim

import "github.com/lfactor/lfactor/kernels/tensor"

// Types of moments beside float32.
const (
	Half     = "bf16"
	EightBit = "8bit"
)

// eightLeast are the numbers of a parameter below which its moments stay in float32, as bitsandbytes' and
// torchao's do, and blockLeast those of a block.
const (
	eightLeast = 4096
	blockLeast = 16
)

// block is how many numbers of a row of a parameter have a scale together: the largest power of two of at
// most most that the row's length is a multiple of. 0 where moments stay in float32: of vectors, of small
// parameters and of rows that no block fits.
func block(s Subject, most int) int {
	n := 1
	for _, x := range s.Shape {
		n *= x
	}
	if len(s.Shape) < 2 || n < eightLeast {
		return 0
	}
	row, b := s.Shape[len(s.Shape)-1], 1
	for 2*b <= most && row%(2*b) == 0 {
		b *= 2
	}
	if b < blockLeast {
		return 0
	}
	return b
}

// narrowed is an optimizer whose moments are of the type that a configuration asks for, where it can keep them so.
func (c Config) narrowed(o Optimizer) Optimizer {
	switch {
	case c.Moments == Half && o.Narrow != "":
		o.Op, o.Forms = o.Narrow, nil
		for range o.State {
			o.Forms = append(o.Forms, Form{Type: tensor.BF16})
		}
	case c.Moments == EightBit && o.Blocks != "" && c.Block > 0:
		o.Op, o.Forms = o.Blocks, nil
		names, scales := o.State, []Form(nil)
		o.State = append([]string{}, names...)
		for _, name := range names {
			o.State = append(o.State, name+"_scale")
			o.Forms, scales = append(o.Forms, Form{Type: tensor.U8}), append(scales, Form{Per: c.Block})
		}
		o.Forms = append(o.Forms, scales...)
	}
	return o
}
