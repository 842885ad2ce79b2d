package features_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/features"
)

// golden is what bench/golden/features.py writes.
type golden struct {
	Inception  []float64
	Lpips      struct{ Each, Plain, Gradient []float64 }
	Statistics struct{ Frechet, Few, Kernel, Precision, Recall float64 }
}

func read(t *testing.T) (g golden) {
	t.Helper()
	text, err := os.ReadFile("testdata/features.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &g))
	return g
}

// numbers are n numbers from -1 to 1 that follow from a name, as the script makes them.
func numbers(name string, n int) []float32 {
	h := uint64(0xCBF29CE484222325)
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 0x100000001B3
	}
	out := make([]float32, n)
	for i := range out {
		z := h + uint64(i+1)*0x9E3779B97F4A7C15
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		out[i] = float32(float64((z^z>>31)>>40)/(1<<23) - 1)
	}
	return out
}

// weights are those of a parameter, as the script makes them.
func weights(name string, shape []int) []float32 {
	u := numbers(name, tensor.Len(shape))
	for i, v := range u {
		switch {
		case strings.HasPrefix(name, "lin"):
			u[i] = float32(math.Abs(float64(v)))
		case len(shape) == 4:
			u[i] = v * float32(math.Sqrt(6/float64(tensor.Len(shape[1:]))))
		case strings.HasSuffix(name, "running_var") || strings.HasSuffix(name, "bn.weight"):
			u[i] = 1 + 0.2*v
		default:
			u[i] = 0.1 * v
		}
	}
	return u
}

// save writes weights of the given shapes as a file of safetensors.
func save(t *testing.T, dir string, shapes map[string][]int) {
	t.Helper()
	var list []checkpoint.Info
	for name, shape := range shapes {
		list = append(list, checkpoint.Info{Name: name, DType: checkpoint.F32, Shape: shape})
	}
	w, err := checkpoint.NewWriter(dir, list, 1<<32)
	require.NoError(t, err)
	for name, shape := range shapes {
		v := tensor.Of(tensor.F32, weights(name, shape), shape...)
		box := make([][2]int, len(shape))
		for i, n := range shape {
			box[i][1] = n
		}
		require.NoError(t, w.WriteRanges(name, box, v.Bytes()))
	}
	require.NoError(t, w.Commit())
}

// vgg16 are the shapes of VGG 16, and of LPIPS' weights if asked.
func vgg16(lins bool) map[string][]int {
	shapes, from, layer := map[string][]int{}, 3, 0
	for level, n := range []int{2, 2, 3, 3, 3} {
		out := min(512, 64<<level)
		for range n {
			name := fmt.Sprintf("features.%d.", layer)
			shapes[name+"weight"], shapes[name+"bias"] = []int{out, from, 3, 3}, []int{out}
			from, layer = out, layer+2
		}
		if layer++; lins {
			shapes[fmt.Sprintf("lin%d.model.1.weight", level)] = []int{1, out, 1, 1}
		}
	}
	return shapes
}

// TestInceptionIsPytorchFID: the vector of an image is that of pytorch-fid's network, resized as there.
func TestInceptionIsPytorchFID(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, inceptionShapes(t))
	d, err := features.Load(dir, cpu.New(0))
	require.NoError(t, err)
	defer d.Close()
	require.Equal(t, 2048, d.Width)
	got, err := d.Describe(numbers("image", 3*40*52), 40, 52)
	require.NoError(t, err)
	want, most, scale := read(t).Inception, 0.0, 0.0
	require.Len(t, got, len(want))
	for i, w := range want {
		most, scale = max(most, math.Abs(float64(got[i])-w)), max(scale, math.Abs(w))
	}
	require.Less(t, most/scale, 2e-5) // of float32's sums through 48 convolutions, against float64
	_, err = d.Describe(make([]float32, 5), 40, 52)
	require.ErrorContains(t, err, "no image of 52×40 pixels")
}

// inceptionShapes are those of the network, which a file without its last tensor names.
func inceptionShapes(t *testing.T) map[string][]int {
	t.Helper()
	dir := t.TempDir()
	save(t, dir, map[string][]int{"Conv2d_1a_3x3.conv.weight": {32, 3, 3, 3},
		"Mixed_7c.branch_pool.conv.weight": {192, 2048, 1, 1}})
	n, err := features.Read(dir)
	require.NoError(t, err)
	shapes := map[string][]int{}
	for _, p := range n.Params() {
		shapes[p.Name] = p.Shape
	}
	require.Len(t, shapes, 94*5)
	return shapes
}

// TestDistanceIsLPIPS: distances and the gradient to the drawn image are those of the package lpips, with its
// weights by channel and without them.
func TestDistanceIsLPIPS(t *testing.T) {
	want := read(t).Lpips
	for _, lins := range []bool{true, false} {
		dir := t.TempDir()
		save(t, dir, vgg16(lins))
		n, err := features.Read(dir)
		require.NoError(t, err)
		require.Equal(t, lins, n.Lins)
		require.Equal(t, []int{64, 128, 256, 512, 512}, n.Widths)
		r := &block.Rec{T: grad.NewTape(grad.Options{DType: tensor.F32,
			Frozen: func(p string) bool { return p != "ours" }})}
		y := r.T.Space(r.T.Param("ours", []int{2 * 32 * 32, 3}, -1, 1, true), 2, 32, 32)
		x := r.T.Data("theirs", tensor.F32, 2, 32, 32, 3)
		r.T.Loss(n.Distance(r, "", y, x, r.T.Data("weight", tensor.F32, 2)))
		loss, g := stepped(t, r.T.Finish())
		each := want.Each
		if !lins {
			each = want.Plain
		}
		require.InDelta(t, each[0]+each[1]/2, loss, 2e-5)
		if !lins {
			continue
		}
		most, scale, i := 0.0, 0.0, 0
		for at := range 2 {
			for row := 0; row < 32; row += 4 {
				for column := 0; column < 32; column += 4 {
					for c := range 3 {
						v := float64(g[((at*32+row)*32+column)*3+c])
						most, scale, i = max(most, math.Abs(v-want.Gradient[i])), max(scale, math.Abs(v)), i+1
					}
				}
			}
		}
		require.Len(t, want.Gradient, i)
		// PyTorch's own gradient in float32 is 1.7e-3 from that in float64: activations beside 0 change sides.
		require.Less(t, most/scale, 4e-3)
	}
}

// stepped gives the loss of a trace and the gradient of the parameter ours.
func stepped(t *testing.T, tr *grad.Trace) (float64, []float32) {
	t.Helper()
	pool := tensor.NewPool("test", 0)
	run := &grad.Runner{Backend: cpu.New(0), Pool: pool, Host: pool, Params: map[string]*tensor.Tensor{},
		Grads: map[string]*tensor.Tensor{}, Seed: 1}
	for _, p := range tr.Params {
		v := weights(p.Name, p.Shape)
		if p.Name == "ours" {
			v = numbers("ours", tensor.Len(p.Shape))
		}
		run.Params[p.Name] = tensor.Of(tensor.F32, v, p.Shape...)
	}
	f := run.NewFrame(tr, map[string]*tensor.Tensor{"theirs": tensor.Of(tensor.F32, numbers("theirs",
		2*32*32*3),
		2, 32, 32, 3), "weight": tensor.Of(tensor.F32, []float32{1, 0.5}, 2)}, nil, nil)
	_, err := run.Step(f, grad.F, 0, nil)
	require.NoError(t, err)
	loss := f.Loss()
	_, err = run.Step(f, grad.B, 0, nil)
	require.NoError(t, err)
	f.Close()
	return float64(loss), run.Grads["ours"].F32()
}

// TestStatistics: the distances of two sets are those of pytorch-fid, of the kernel's formula and of the
// shares within reach, with more vectors than numbers and with fewer.
func TestStatistics(t *testing.T) {
	want := read(t).Statistics
	set := func(name string, n int, f func(float32) float32) (rows [][]float32) {
		all := numbers(name, n*12)
		for i := range all {
			all[i] = f(all[i])
		}
		for i := range n {
			rows = append(rows, all[i*12:(i+1)*12])
		}
		return rows
	}
	a := set("set a", 60, func(v float32) float32 { return v })
	b := set("set b", 50, func(v float32) float32 { return v*0.8 + 0.1 })
	s, err := features.Compare(a, b)
	require.NoError(t, err)
	require.InDelta(t, want.Frechet, s.Frechet, 1e-5)
	require.InDelta(t, want.Kernel, s.Kernel, 1e-5)
	require.Equal(t, [2]float64{want.Precision, want.Recall}, [2]float64{s.Precision, s.Recall})
	s, err = features.Compare(a[:8], b)
	require.NoError(t, err)
	require.InDelta(t, want.Few, s.Frechet, 1e-5)
	s, err = features.Compare(a, a)
	require.NoError(t, err)
	require.InDelta(t, 0, s.Frechet, 1e-9)
	_, err = features.Compare(a[:3], b)
	require.ErrorContains(t, err, "3 pictures have no statistics")
	a[5][2] = float32(math.NaN())
	_, err = features.Compare(a, b)
	require.ErrorContains(t, err, "not finite")
}

// TestFaults: folders whose weights are of no network, of two files with one tensor, or of another shape.
func TestFaults(t *testing.T) {
	dir := t.TempDir()
	_, err := features.Read(dir)
	require.ErrorContains(t, err, "no file of weights")
	save(t, filepath.Join(dir, "a"), map[string][]int{"other.weight": {2}})
	_, err = features.Read(filepath.Join(dir, "a"))
	require.ErrorContains(t, err, "no network that is known: Inception v3")
	shapes := vgg16(true)
	delete(shapes, "lin3.model.1.weight")
	save(t, filepath.Join(dir, "b"), shapes)
	_, err = features.Read(filepath.Join(dir, "b"))
	require.ErrorContains(t, err, "for some of its 5 maps")
	shapes = vgg16(false)
	shapes["features.5.weight"] = []int{128, 32, 3, 3}
	save(t, filepath.Join(dir, "c"), shapes)
	_, err = features.Read(filepath.Join(dir, "c"))
	require.ErrorContains(t, err, "features.5 is [128 32 3 3] behind 64 channels")
	file, err := os.ReadFile(filepath.Join(dir, "a", "model.safetensors"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "more.safetensors"), file, 0o600))
	_, err = features.Read(filepath.Join(dir, "a"))
	require.ErrorContains(t, err, "another file of the folder has it too")
}
