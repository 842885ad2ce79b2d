package kernelstest

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// torchJSON is written by bench/golden/kernels_torch.py.
//
//go:embed testdata/torch.json
var torchJSON []byte

// spaceJSON is written by bench/golden/space_torch.py.
//
//go:embed testdata/space.json
var spaceJSON []byte

// diffusionJSON is written by bench/golden/diffusion_torch.py.
//
//go:embed testdata/diffusion.json
var diffusionJSON []byte

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
func golden(t *testing.T, b kernels.Backend, p Part) {
	for k, file := range [][]byte{torchJSON, spaceJSON, diffusionJSON} {
		var l []goldenCase
		require.NoError(t, json.Unmarshal(file, &l))
		for i, g := range l {
			if p.has(g.Op) {
				g.compare(t, b, fmt.Sprintf("golden %d of file %d", i, k))
			}
		}
	}
}

// Torch has bench/golden/space_torch.py make results of PyTorch for 300 random shapes of each operation on
// places: 900 of convolutions, each with both gradients, and 300 transposed. It wants Python with torch, named by
// LFACTOR_PYTHON or python3, and a test of a package two folders below the root; without them t is skipped.
func Torch(t *testing.T) []byte {
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	run := exec.Command(python, "bench/golden/space_torch.py", "300")
	run.Dir = "../.."
	out, err := run.Output()
	if err != nil {
		t.Skipf("%s cannot make results of torch (%v): nothing is compared", python, err)
	}
	return out
}

// Golden compares b with such results, one a line, and says how many there were of each operation.
func Golden(t *testing.T, b kernels.Backend, lines io.Reader) map[kernels.Op]int {
	seen := map[kernels.Op]int{}
	for d, i := json.NewDecoder(lines), 0; ; i++ {
		var g goldenCase
		if err := d.Decode(&g); errors.Is(err, io.EOF) {
			return seen
		} else {
			require.NoError(t, err)
		}
		g.compare(t, b, fmt.Sprintf("line %d", i+1))
		seen[g.Op]++
	}
}

func (g *goldenCase) compare(t *testing.T, b kernels.Backend, name string) {
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
		requireClose(t, fmt.Sprintf("%s %s out %d", name, g.Op, j), c.Out[j], out.tensor(),
			bound{tol: g.Tol, why: g.Why})
	}
}
