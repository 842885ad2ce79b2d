package texts

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// golden is testdata/CASE, which bench/golden/texts.py makes with transformers.
type golden struct {
	t    *testing.T
	dir  string
	file *checkpoint.File
}

// cases are the folders of testdata with a golden.safetensors.
func cases(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*/golden.safetensors")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 6)
	for _, f := range files {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	return names
}

func openGolden(t *testing.T, name string) *golden {
	t.Helper()
	g := &golden{t: t, dir: filepath.Join("testdata", name)}
	var err error
	g.file, err = checkpoint.OpenFile(filepath.Join(g.dir, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.file.Close()) })
	return g
}

// raw is a golden tensor, nil if there is none.
func (g *golden) raw(name string) (checkpoint.Info, []byte) {
	for _, i := range g.file.Tensors() {
		if i.Name == name {
			raw := make([]byte, i.Bytes)
			require.NoError(g.t, g.file.ReadInto(name, 0, i.Bytes, raw))
			return i, raw
		}
	}
	return checkpoint.Info{}, nil
}

func (g *golden) floats(name string) []float32 {
	info, raw := g.raw(name)
	if raw == nil {
		return nil
	}
	out := make([]float32, tensor.Len(info.Shape))
	tensor.Widen(tensor.F32, raw, out)
	return out
}

func (g *golden) ints(name string) []int32 {
	_, raw := g.raw(name)
	return tensor.Over(tensor.I32, raw, len(raw)/4).I32()
}

// captions are the token ids of each.
func (g *golden) captions() (out [][]int32) {
	ids := g.ints("ids")
	for _, n := range g.ints("lens") {
		out, ids = append(out, ids[:n]), ids[n:]
	}
	return out
}

// near is how far numbers are apart, relative to the largest of those wanted.
func near(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	off, most := 0.0, 1e-30
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - float64(w)); !(d <= off) {
			off = d
		}
		most = max(most, math.Abs(float64(w)))
	}
	return off / most
}

func backends(t *testing.T) map[string]kernels.Backend {
	t.Helper()
	fast := cpu.New(2)
	t.Cleanup(func() { kernels.Close(fast) })
	return map[string]kernels.Backend{"ref": ref.New(), "cpu": fast}
}

// The states and pooled rows are transformers', of the last layer and of the one before; both are float32
// sums over at most 28 numbers and three layers.
func TestStatesAreTransformers(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range cases(t) {
		g := openGolden(t, name)
		for on, b := range backends(t) {
			e, err := Open(g.dir, b, tensor.F32)
			require.NoError(t, err)
			seen[e.Class] = true
			check := func(what, as string, got []float32) {
				if d := near(got, g.floats(as)); d > 1e-5 {
					t.Errorf("%s on %s: %s is off by %g", name, on, what, d)
				}
			}
			states, pooled, err := e.Encode(g.captions())
			require.NoError(t, err)
			check("the last state", "last", slices.Concat(states...))
			if e.Pooled > 0 {
				check("the pooled row", "pooled", slices.Concat(pooled...))
			}
			e.Take = Penultimate
			states, pooled, err = e.Encode(g.captions())
			require.NoError(t, err)
			require.Nil(t, pooled[0])
			check("the state before", g.before(e.Layers), slices.Concat(states...))
			e.Close()
			require.Zero(t, e.run.Pool.Buffers())
		}
	}
	for _, c := range Classes() {
		require.True(t, seen[c.Name], "no golden case of %s", c.Name)
	}
}

// before is the name of the states behind all layers but the last.
func (g *golden) before(layers int) string { return "hidden." + string(rune('0'+layers-1)) }

// Every parameter has transformers' gradient, of all captions packed into one microbatch, within 1e-4 of its
// largest; and a layer whose states nothing is taken of has none.
func TestGradientsAreTransformers(t *testing.T) {
	for _, name := range cases(t) {
		g := openGolden(t, name)
		for on, b := range backends(t) {
			g.gradients(name+" on "+on, "grad.", b, Take{Norm: true, Pooled: true})
			if name == "clip-projected" {
				g.gradients(name+" on "+on, "tap.", b, Take{Skip: 1, Pooled: true})
			}
		}
	}
}

func (g *golden) gradients(what, prefix string, b kernels.Backend, take Take) {
	t := g.t
	e, err := Open(g.dir, b, tensor.F32)
	require.NoError(t, err)
	defer e.Close()
	take.Pooled = e.Pooled > 0
	captions := g.captions()
	data, err := e.Data("", captions, take)
	require.NoError(t, err)
	tr := e.Record(grad.Options{}, len(g.ints("ids")), len(captions), take)
	f := e.run.NewFrame(tr, data, nil, nil)
	_, err = e.run.Step(f, grad.F, 0, nil)
	require.NoError(t, err)
	for _, out := range f.Outputs() {
		out.Release()
	}
	dout := map[string]*tensor.Tensor{StatesPort: tensor.Of(tensor.F32, g.floats("cotangent"),
		len(g.ints("ids")), e.Width)}
	if take.Pooled {
		dout[PooledPort] = tensor.Of(tensor.F32, g.floats("cotangent.pooled"), len(captions), e.Pooled)
	}
	f.Gradients(dout)
	_, err = e.run.Step(f, grad.B, 0, nil)
	require.NoError(t, err)
	f.Close()
	checked := 0
	for _, i := range g.file.Tensors() {
		file, ok := strings.CutPrefix(i.Name, prefix)
		if !ok {
			continue
		}
		got := e.run.Grads[e.logical(file)]
		require.NotNil(t, got, "%s: no gradient of %s", what, file)
		d := near(got.F32(), g.floats(i.Name))
		if weight, ok := strings.CutSuffix(i.Name, "k_proj.bias"); ok {
			// it adds the same to all scores of a query, so that its gradient is 0 but for rounding
			n := len(got.F32())
			d = near(append(got.F32(), g.floats(weight+"k_proj.weight")...),
				append(make([]float32, n), g.floats(weight+"k_proj.weight")...))
		}
		if d > 1e-4 {
			t.Errorf("%s: gradient of %s is off by %g", what, file, d)
		}
		got.Release()
		checked++
	}
	require.Equal(t, len(e.Params()), checked, what)
}

// The buckets of distances are T5's, for tables of other sizes than the published one too.
func TestBucketsAreTransformers(t *testing.T) {
	var tables []struct {
		Buckets, Distance int
		Of                []int32
	}
	text, err := os.ReadFile("testdata/buckets.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &tables))
	for _, x := range tables {
		got, beyond := grad.RelativeBuckets(x.Buckets, x.Distance, false), (len(x.Of)-2*x.Distance-1)/2
		require.Equal(t, x.Of[beyond:len(x.Of)-beyond], got, "%d buckets up to %d", x.Buckets, x.Distance)
		for i := range beyond { // farther ones take the last
			require.Equal(t, got[0], x.Of[i])
			require.Equal(t, got[len(got)-1], x.Of[len(x.Of)-1-i])
		}
	}
}
