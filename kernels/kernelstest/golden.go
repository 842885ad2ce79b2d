package kernelstest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// torchJSON is written by bench/golden/kernels_torch.py.
//
//go:embed testdata/torch.json
var torchJSON []byte

type goldenTensor struct {
	DType string
	Shape []int
	Data  []byte
}

type goldenCase struct {
	Op              kernels.Op
	In, Out, Before []*goldenTensor
	Tol             float64
	Why             string
	I               []int
	F               []float64
}

func (g *goldenTensor) tensor() *tensor.Tensor {
	if g == nil {
		return nil
	}
	d, err := tensor.ParseDType(g.DType)
	if err != nil {
		panic(fmt.Sprintf("kernelstest: golden tensor: %v", err))
	}
	t := tensor.Make(d, g.Shape...)
	if copy(t.Bytes(), g.Data) != len(t.Bytes()) {
		panic(fmt.Sprintf("kernelstest: golden tensor %v has %d bytes", t, len(g.Data)))
	}
	return t
}

// golden compares b with results of PyTorch.
func golden(t *testing.T, b kernels.Backend) {
	var l []goldenCase
	require.NoError(t, json.Unmarshal(torchJSON, &l))
	for i, g := range l {
		c := &kernels.Call{Op: g.Op}
		copy(c.Attr.I[:], g.I)
		copy(c.Attr.F[:], g.F)
		for _, in := range g.In {
			c.In = append(c.In, in.tensor())
		}
		for j, out := range g.Out {
			o := out.tensor()
			for k := range o.Bytes() {
				o.Bytes()[k] = 0xff
			}
			if g.Before != nil {
				o = g.Before[j].tensor()
			}
			c.Out = append(c.Out, o)
		}
		b.Run(c)
		b.Sync()
		for j, out := range g.Out {
			requireClose(t, fmt.Sprintf("golden %d %s out %d", i, g.Op, j), c.Out[j], out.tensor(),
				bound{tol: g.Tol, why: g.Why})
		}
	}
}
