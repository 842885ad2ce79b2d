package grad

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew from the traces that the tape makes now")

// tapes are ways to record: on one rank, and on every kind of axis, with what shards and hides along them.
func tapes() map[string]Options {
	axis := func(name string, size int) MeshAxis { return MeshAxis{Name: name, Size: size} }
	tp, sp, dp := axis("tp", 2), axis("tp", 2), axis("dp", 2)
	sp.Rows, dp.Data, dp.Zero = true, true, true
	cp, ring, u := axis("cp", 2), axis("cp", 2), axis("ulysses", 2)
	for _, a := range []*MeshAxis{&cp, &ring, &u} {
		a.Rows, a.Context, a.Zero = true, true, true
	}
	ring.Ring, ring.Zigzag, u.Exchange, cp.Zigzag = true, true, true, true
	return map[string]Options{
		"one":      {},
		"bf16":     {DType: tensor.BF16, KeepLogits: true},
		"tp":       {Mesh: []MeshAxis{tp}, Overlap: true},
		"tp whole": {Mesh: []MeshAxis{tp}, SumWhole: 1 << 20},
		"sp":       {Mesh: []MeshAxis{sp}, DType: tensor.BF16, SumWhole: 16},
		"zero3":    {Mesh: []MeshAxis{dp}, ShardGrads: true, ShardParams: true, Overlap: true},
		"zero2 tp": {Mesh: []MeshAxis{dp, tp}, ShardGrads: true, RecomputePerPhase: true},
		"cp":       {Mesh: []MeshAxis{cp}, Recompute: RecomputeFull},
		"ring":     {Mesh: []MeshAxis{ring}, Recompute: RecomputeSelective},
		"ulysses":  {Mesh: []MeshAxis{u}},
		"hybrid": {Mesh: []MeshAxis{dp, ring, u, sp}, ShardGrads: true, ShardParams: true,
			DType: tensor.BF16},
	}
}

// Summary says of a trace what users pay for, and identifies the rest.
func Summary(tr *Trace) string {
	var flops, bytes, sent int64
	var count [4]int
	for i, p := range []Phase{F, B, I, W} {
		for _, s := range tr.Segments(p) {
			count[i]++
			flops, bytes = flops+s.Cost.Flops, bytes+s.Cost.Bytes
			sent += int64(len(s.Comm))
		}
	}
	foot := tr.Memory(true, 1)
	return fmt.Sprintf("segments %v, flops %d, bytes %d, exchanges %d, peaks %v, after %v, %.16s", count,
		flops, bytes,
		sent, foot.Peak, foot.After, tr.Hash())
}

// TestPinnedTraces: what the tape makes of every operation that has a gradient, alone, recorded on every kind
// of axis, is what testdata/traces.txt says: pieces between exchanges, work, memory, and a hash of all nodes
// with their placements. After a change that is meant: go test ./kernels/grad -run Pinned -rewrite.
func TestPinnedTraces(t *testing.T) {
	const file = "testdata/traces.txt"
	var b strings.Builder
	all, ways := rules(), tapes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			fmt.Fprintf(&b, "%s, %s: %s\n", name, way, trial(all[name], ways[way]))
		}
	}
	more := moreRules()
	for _, name := range slices.Sorted(maps.Keys(more)) {
		for chunk := range 3 {
			fmt.Fprintf(&b, "%s, chunk %d: %s\n", name, chunk, trial(more[name], Options{Chunk: chunk,
				Chunks: 3}))
		}
		for _, way := range []string{"tp", "sp", "zero2 tp", "cp"} {
			fmt.Fprintf(&b, "%s, %s: %s\n", name, way, trial(more[name], ways[way]))
		}
	}
	Pinned(t, file, b.String())
}

// moreRules are operations of chunks, and operations behind a product that is cut by columns.
func moreRules() map[string]rule {
	type s = map[string][]int
	return map[string]rule{
		"conv chunk": {s{"x": {6, 4}, "w": {4, 3}}, func(t *Tape, v map[string]*Value) *Value {
			return t.ConvChunk("conv", v["x"], v["w"])
		}},
		"delta chunk": {s{"q": {6, 2, 2}, "k": {6, 2, 2}, "v": {6, 2, 4}, "g": {6, 2}, "wb": {6, 2}},
			func(t *Tape, v map[string]*Value) *Value {
				g, b := t.asType(v["g"], tensor.F32), t.asType(v["wb"], tensor.F32)
				return t.DeltaChunk("delta", v["q"], v["k"], v["v"], g, b, 1e-6)
			}},
		"cut columns": {s{"x": {6, 4}, "w": {4, 4}, "z": {6, 1}}, func(t *Tape, v map[string]*Value) *Value {
			y := t.Linear(v["x"], v["w"], nil)
			key := t.Data("key", tensor.I32, 6)
			return t.Jitter(t.GateRows(t.MulCols(y, t.Const("cols", []float32{1, 2, 3, 4})),
				t.asType(v["z"], tensor.F32)), key, 0.1, 2)
		}},
		"cut heads": {s{"x": {6, 4}, "w": {8, 4}, "wk": {4, 4}}, func(t *Tape, v map[string]*Value) *Value {
			q, k := t.Heads(t.Linear(v["x"], v["w"], nil), 2), t.Heads(t.Linear(v["x"], v["wk"], nil), 2)
			sink := t.Param("wsink", []int{1, 4}, 1, 1, false)
			cu := t.Data("cu", tensor.I32, 3)
			return t.Flat(t.Attention(q, k, k, cu, cu, AttentionConfig{Scale: 0.5, Causal: true, Window: 4,
				Sink: sink}))
		}},
	}
}

// Pinned compares a text with a file, which -rewrite writes.
func Pinned(t *testing.T, file, text string) {
	t.Helper()
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "after a change that is meant: add -rewrite")
}

// trial records a rule; an operation that an axis cannot cut says why.
func trial(x rule, o Options) (text string) {
	defer func() {
		if why := recover(); why != nil {
			text = fmt.Sprint("refused: ", why)
		}
	}()
	if o.DType == 0 {
		o.DType = tensor.F32
	}
	var name string
	o.InputGrad = func(string) bool { return true }
	tape := NewTape(o)
	v := map[string]*Value{}
	tape.Block(0, func() {
		for _, name = range slices.Sorted(maps.Keys(x.shapes)) {
			if name[0] == 'w' {
				axis := -1 // of vectors; matrices are cut by rows
				if len(x.shapes[name]) > 1 {
					axis = 0
				}
				v[name] = tape.Param(name, x.shapes[name], axis, 1, true)
			} else {
				v[name] = tape.Input(name, o.DType, x.shapes[name]...)
			}
		}
		tape.Output("y", x.build(tape, v))
	})
	return Summary(tape.Finish())
}
