package texts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// sized is the encoder of a class and keys.
func sized(t *testing.T, class, keys string) *Model {
	t.Helper()
	m, err := Read("config.json", fmt.Appendf(nil, `{"architectures": [%q], %s}`, class, keys))
	require.NoError(t, err)
	return m
}

// Each class has as many parameters as transformers counts in its published sizes.
func TestCounts(t *testing.T) {
	for _, c := range Classes() {
		require.NotEmpty(t, c.Sizes, c.Name)
		for _, s := range c.Sizes {
			require.Equal(t, s.Params, sized(t, c.Name, s.Config).Count(), s.Name)
		}
	}
}

// inStages runs an encoder cut before each of its blocks, and gives what its last stage gives.
func inStages(t *testing.T, e *Encoder, ids [][]int32) map[string][]float32 {
	t.Helper()
	m := e.Alone(e.Take)
	var cuts []int
	for i := range len(m.Blocks) + 1 {
		cuts = append(cuts, i)
	}
	stages := m.Cut(cuts)
	last := &stages[len(stages)-1]
	for _, p := range m.Blocks[len(m.Blocks)-1].Gives {
		last.Out = append(last.Out, family.Flow{Port: p})
	}
	ports, rows := map[string]*tensor.Tensor{}, len(slices.Concat(ids...))
	for _, st := range stages {
		tr := m.Record(grad.Options{NoGrad: true}, block.Rec{Shape: block.Shape{Rows: rows,
			Dims: map[string]int{Captions: len(ids)}}}, st)
		data, err := e.Data("", ids, e.Take)
		require.NoError(t, err)
		in := map[string]*tensor.Tensor{}
		for _, f := range st.In {
			in[f.Port] = ports[f.Port].Retain()
		}
		f := e.run.NewFrame(tr, data, in, nil)
		_, err = e.run.Step(f, grad.F, 0, nil)
		require.NoError(t, err)
		for name, out := range f.Outputs() {
			ports[name] = out
		}
		f.Close()
	}
	out := map[string][]float32{}
	for _, f := range last.Out {
		out[f.Port] = ports[f.Port].F32()
	}
	return out
}

// An encoder that is cut before each of its blocks, with all captions packed, gives the bits of each caption
// alone: what a block takes and gives is complete, and captions do not see each other. Of the reference
// backend this is so for every take.
func TestCutAndPacked(t *testing.T) {
	for _, name := range cases(t) {
		g := openGolden(t, name)
		e, err := Open(g.dir, ref.New(), tensor.F32)
		require.NoError(t, err)
		for _, take := range []Take{Last, Penultimate, {}, {Skip: e.Layers}, {Skip: 1, Norm: true}} {
			for _, pooled := range []bool{false, true} {
				if pooled && e.Pooled == 0 {
					continue
				}
				e.Take = take
				e.Take.Pooled = pooled
				states, rows, err := e.Encode(g.captions())
				require.NoError(t, err)
				out := inStages(t, e, g.captions())
				require.Equal(t, slices.Concat(states...), out[StatesPort], "%s %+v", name, e.Take)
				if pooled {
					require.Equal(t, slices.Concat(rows...), out[PooledPort], "%s %+v", name, e.Take)
				}
			}
		}
		e.Close()
	}
}

// Within a larger model everything of an encoder has its name in front, and a microbatch without captions
// runs none of it.
func TestWithinAModel(t *testing.T) {
	m := sized(t, "CLIPTextModelWithProjection", `"num_hidden_layers": 2`)
	in := family.Model{Family: "larger", Blocks: m.Blocks("second", Take{Skip: 1, Pooled: true}),
		Ports: m.Ports("second")}
	st := family.Stage{To: len(in.Blocks), Out: []family.Flow{{Port: "second.states"},
		{Port: "second.pooled"}}}
	shape := block.Shape{Rows: 100, Dims: map[string]int{"second": 14, "second.captions": 2}}
	tr := in.Record(grad.Options{}, block.Rec{Shape: shape}, st)
	for _, p := range tr.Params {
		require.True(t, strings.HasPrefix(p.Name, "second."), p.Name)
	}
	require.Equal(t, len(m.Params()), len(tr.Params))
	for _, name := range tr.Data {
		require.True(t, strings.HasPrefix(name, "second."), name)
	}
	require.Equal(t, []int{14, 512}, tr.Out[1].Value.Shape)
	require.Equal(t, []int{2, 512}, tr.Out[0].Value.Shape)
	for _, b := range in.Blocks {
		require.True(t, strings.HasPrefix(b.Name, "second."), b.Name)
		require.Equal(t, "second", b.Component)
	}
	none := in.Record(grad.Options{}, block.Rec{Shape: block.Shape{Rows: 100}}, st)
	require.Empty(t, none.Params)
}

// Over two ranks of tensor parallelism matrices of heads, of inner features and of the vocabulary are shared
// out, as is the table of biases; norms, biases behind a sum and positions are not.
func TestSharedOut(t *testing.T) {
	whole := []string{"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "norm.weight", "norm.bias",
		"out_proj.bias", "fc2.bias", "position_embedding.weight"}
	for _, class := range []string{"CLIPTextModel", "UMT5EncoderModel"} {
		tr := sized(t, class, `"vocab_size": 49408`).Record(
			grad.Options{Mesh: []grad.MeshAxis{{Name: grad.TP, Size: 2}}}, 6, 2, Last)
		for _, p := range tr.Params {
			want := 2
			if slices.ContainsFunc(whole, func(end string) bool { return strings.HasSuffix(p.Name, end) }) {
				want = 1
			}
			require.Equal(t, want, tensor.Len(p.Shape)/tensor.Len(p.Local), "%s of %s", p.Name, class)
		}
	}
}

// The traces that an encoder keeps are bounded: when there are as many, all are made anew.
func TestTracesMost(t *testing.T) {
	e, err := Open("testdata/t5", ref.New(), tensor.F32)
	require.NoError(t, err)
	defer e.Close()
	for i := range tracesMost {
		e.traces[traceKey{rows: 1000 + i}] = nil
	}
	_, _, err = e.Encode([][]int32{{1, 2}, {3, 4}})
	require.NoError(t, err)
	require.Len(t, e.traces, 1)
}

// What an encoder cannot take or give is refused, with the number of the caption.
func TestEncodeRefuses(t *testing.T) {
	e, err := Open("testdata/clip", ref.New(), tensor.F32)
	require.NoError(t, err)
	defer e.Close()
	good := []int32{3, 40}
	for want, ids := range map[string][]int32{"caption 1: it has no tokens": nil,
		"caption 1: 13 tokens, and CLIPTextModel has 12 positions": make([]int32, 13),
		"caption 1: token 1 has the id 42":                         {3, 42},
		"caption 1: token 0 has the id -1":                         {-1},
		"caption 1: it has no token 40, eos_token_id":              {3, 4}} {
		_, _, err := e.Encode([][]int32{good, ids})
		require.ErrorContains(t, err, want)
	}
	e.Take = Take{Skip: 4}
	_, _, err = e.Encode([][]int32{good})
	require.ErrorContains(t, err, "without the last 4 layers of CLIPTextModel, which has 3")
	e.Take = Last // without a pooled row no end is looked for
	_, _, err = e.Encode([][]int32{{3, 4}})
	require.NoError(t, err)
	u, err := Open("testdata/umt5", ref.New(), tensor.F32)
	require.NoError(t, err)
	defer u.Close()
	u.Take.Pooled = true
	_, _, err = u.Encode([][]int32{good})
	require.ErrorContains(t, err, "UMT5EncoderModel has no pooled rows")
}

// A caption's states are the same bits alone, among others, and with any number of threads, in bfloat16 too;
// a length that was met before runs the trace that was made for it.
func TestNeighbours(t *testing.T) {
	for _, name := range []string{"clip-projected", "umt5"} {
		var wide []float32
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
			var first [][]float32
			for _, threads := range []int{1, 2, 3} {
				e, err := Open("testdata/"+name, cpuOf(t, threads), d)
				require.NoError(t, err)
				ids := []int32{3, 7, 40, 9, 11}
				alone, pooled, err := e.Encode([][]int32{ids})
				require.NoError(t, err)
				if first != nil && d == tensor.BF16 {
					// Its eight bits, which scores of attention spread, those of UMT5 without a scale: 0.1001 by plain Go
					// and AVX2, whose products are float32's.
					off := near(alone[0], wide)
					require.True(t, off > 0 && off < 0.125, "%s in bf16 is off by %g", name, off)
				} else if d == tensor.F32 {
					wide = alone[0]
				}
				among, rows, err := e.Encode([][]int32{{5, 6, 40, 30, 31, 32}, ids, {40}, ids})
				require.NoError(t, err)
				require.Len(t, e.traces, 3)
				for _, i := range []int{1, 3} {
					require.Equal(t, alone[0], among[i])
					require.Equal(t, pooled[0], rows[i])
				}
				if first == nil {
					first = alone
				}
				require.Equal(t, first, alone, "%s in %v with %d threads", name, d, threads)
				e.Close()
			}
		}
	}
}

// A block's weight is the number of weights that a token passes in it: what pipelines are cut by. Norms and
// biases have no part in it, and no decay of weights.
func TestWeights(t *testing.T) {
	for _, name := range cases(t) {
		m, err := ReadFile("testdata/" + name + "/config.json")
		require.NoError(t, err)
		for i, b := range m.Blocks("", Last) {
			matrices := 0
			for _, p := range m.Params() {
				vector := len(p.Shape) == 1 || strings.HasSuffix(p.Name, "relative_attention_bias.weight")
				require.Equal(t, !vector, p.Decay, p.Name)
				if !vector && strings.HasPrefix(p.Name, b.Name+".") {
					matrices += tensor.Len(p.Shape)
				}
			}
			require.Equal(t, i > 0 && i <= m.Layers, b.Recompute)
			if b.Recompute {
				require.Equal(t, float64(matrices), b.Weight, "%s of %s", b.Name, name)
			}
		}
	}
}
