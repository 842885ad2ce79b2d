//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Numbers of cuDNN's backend interface, version 9 (cudnn_graph.h).
const (
	dnnEngine, dnnEngineConfig, dnnHeuristic, dnnPlan      = 2, 3, 4, 5
	dnnKnobChoice, dnnGraph, dnnPack, dnnTensor, dnnDevice = 7, 15, 16, 17, 38
	dnnForward, dnnBackward, dnnBand, dnnSoftmax           = 41, 43, 44, 45 // operations

	typeHandle, typeDType, typeBool, typeInt64, typeFloat = 0, 1, 2, 3, 4
	typePointer, typeHeuristic, typeKnob, typeNote        = 6, 8, 9, 11
	typePointwise, typeDescriptor, typeChar               = 14, 15, 24

	heuristicMode, heuristicGraph, heuristicResults, heuristicDevice    = 200, 201, 202, 204
	configEngine, configKnobs                                           = 300, 302
	planConfig, planWorkspace, planDevice                               = 401, 402, 407
	knobType, knobValue                                                 = 600, 601
	graphOps                                                            = 801
	tensorAlign, tensorDType, tensorDims, tensorStrides                 = 900, 901, 902, 903
	tensorID, tensorVirtual, tensorByValue, tensorRagged, tensorRowSize = 906, 907, 908, 913, 914
	packIDs, packPointers, packWorkspace                                = 1000, 1001, 1003
	engineGraph, engineIndex, engineNotes, engineDevice                 = 1300, 1301, 1303, 1307
	deviceHandle, deviceJSON                                            = 2701, 2702

	forwardQ, forwardK, forwardV, forwardO, forwardScale              = 2800, 2801, 2802, 2803, 2805
	forwardGraph, forwardGraphIn, forwardGraphOut, forwardSoftmax     = 2811, 2812, 2813, 2814
	forwardBordersQ, forwardBordersK                                  = 2820, 2821
	backwardQ, backwardK, backwardV, backwardO, backwardStats         = 2851, 2852, 2853, 2854, 2855
	backwardScale, backwardDQ, backwardDK, backwardDV, backwardDO     = 2856, 2859, 2860, 2861, 2862
	backwardMostQ, backwardMostK                                      = 2865, 2866
	backwardGraph, backwardGraphIn, backwardGraphOut                  = 2867, 2868, 2869
	backwardBordersQ, backwardBordersK                                = 2870, 2871
	bandX, bandLengthK, bandLengthQ, bandLeft, bandB, bandY, bandTest = 3000, 3001, 3002, 3003, 3005, 3006, 3007
	bandBordersK, bandBordersQ                                        = 3008, 3009
	softmaxX, softmaxY, softmaxStats                                  = 3100, 3101, 3102

	testGT, testGE               = 302, 303
	noteNotTheSame               = 4 // an engine whose bits differ from run to run
	modeBest, modeFallback       = 3, 2
	dnnFloat, dnnHalf            = 0, 2
	dnnInt32, dnnBF16            = 4, 9
	dnnAlign               int64 = 16
)

// dnnTypes are dtypes as cuDNN numbers them.
var dnnTypes = map[tensor.DType]int32{tensor.BF16: dnnBF16, tensor.F16: dnnHalf}

// Operands of attention by their number in a graph. The ones from idScale on are scalars of the host.
const (
	idQ = 1 + iota
	idK
	idV
	idO
	idStats
	idDO
	idDQ
	idDK
	idDV
	idBordersQ
	idBordersK
	idScale
	idNever
	idWindow
	idLengthQ
	idLengthK
	idScores // and all from here on exist in a kernel alone
	idCausal
	idBanded
	idSoftIn
	idSoftOut
)

// shape is all that a plan for attention depends on.
type attentionShape struct {
	backward, causal bool
	dtype            tensor.DType
	sequences        int // packed ones; 0 for one whole sequence without borders
	rows, keys       int // at most of a sequence, and of all
	heads, keyHeads  int
	width            int
	window           int  // keys, 0 for all
	loose            bool // bits may differ from run to run
}

// String is how the shape is kept in a run's directory.
func (s attentionShape) String() string {
	name := "attention"
	if s.backward {
		name = "attention_bwd"
	}
	return fmt.Sprintf("%s %v %dx%d sequences=%d heads=%d/%d width=%d causal=%v window=%d", name, s.dtype,
		s.rows, s.keys, s.sequences, s.heads, s.keyHeads, s.width, s.causal, s.window)
}

// graph builds descriptors; the first error stops what follows. All are given back together.
type graph struct {
	lib  *Attentions
	made []uintptr
	err  error
}

func (g *graph) close() {
	for _, d := range slices.Backward(g.made) {
		// what is lost is memory of the library
		_ = g.lib.call("cudnnBackendDestroyDescriptor", g.lib.endDescriptor, d)
	}
	g.made = nil
}

func (g *graph) new(kind uintptr) (d uintptr) {
	if g.err != nil {
		return 0
	}
	g.err = g.lib.call("cudnnBackendCreateDescriptor", g.lib.newDescriptor, kind, uintptr(unsafe.Pointer(&d)))
	if g.err == nil {
		g.made = append(g.made, d)
	}
	return d
}

func (g *graph) finish(d uintptr) uintptr {
	if g.err == nil {
		g.err = g.lib.call("cudnnBackendFinalize", g.lib.finalize, d)
	}
	return d
}

// put sets an attribute to n values at p.
func (g *graph) put(d uintptr, attribute, kind uintptr, n int, p unsafe.Pointer) {
	if g.err == nil {
		g.err = g.lib.call("cudnnBackendSetAttribute", g.lib.set, d, attribute, kind, uintptr(n), uintptr(p))
	}
}

func (g *graph) ints(d uintptr, attribute uintptr, v ...int64) {
	g.put(d, attribute, typeInt64, len(v), unsafe.Pointer(&v[0]))
}

func (g *graph) enum(d uintptr, attribute, kind uintptr, v int32) {
	g.put(d, attribute, kind, 1, unsafe.Pointer(&v))
}

func (g *graph) flag(d uintptr, attribute uintptr) {
	v := true
	g.put(d, attribute, typeBool, 1, unsafe.Pointer(&v))
}

func (g *graph) refer(d uintptr, attribute uintptr, to ...uintptr) {
	g.put(d, attribute, typeDescriptor, len(to), unsafe.Pointer(&to[0]))
}

// read gets up to n values of an attribute and returns how many there are.
func (g *graph) read(d uintptr, attribute, kind uintptr, n int, p unsafe.Pointer) (have int64) {
	if g.err == nil {
		g.err = g.lib.call("cudnnBackendGetAttribute", g.lib.get, d, attribute, kind, uintptr(n),
			uintptr(unsafe.Pointer(&have)), uintptr(p))
	}
	return have
}

// matrix describes an operand of four dimensions; ragged is a descriptor of borders, in rows of rowSize elements, or 0.
func (g *graph) matrix(id int64, dtype int32, dims, strides [4]int64, ragged uintptr, rowSize int64) uintptr {
	d := g.new(dnnTensor)
	g.ints(d, tensorID, id)
	g.enum(d, tensorDType, typeDType, dtype)
	g.ints(d, tensorAlign, dnnAlign)
	g.ints(d, tensorDims, dims[:]...)
	g.ints(d, tensorStrides, strides[:]...)
	if id >= idScores {
		g.flag(d, tensorVirtual)
	}
	if id >= idScale && id < idScores {
		g.flag(d, tensorByValue)
	}
	if ragged != 0 {
		g.refer(d, tensorRagged, ragged)
		g.ints(d, tensorRowSize, rowSize)
	}
	return g.finish(d)
}

// scalar describes one value of the host.
func (g *graph) scalar(id int64, dtype int32) uintptr {
	one := [4]int64{1, 1, 1, 1}
	return g.matrix(id, dtype, one, one, 0, 0)
}

// borders describes c+1 cumulative rows.
func (g *graph) borders(id int64, s attentionShape) uintptr {
	if s.sequences == 0 {
		return 0
	}
	n := int64(s.sequences + 1)
	return g.matrix(id, dnnInt32, [4]int64{n, 1, 1, 1}, [4]int64{1, 1, 1, 1}, 0, 0)
}

// attention describes one direction of attention, all of a graph.
func (g *graph) attention(s attentionShape) uintptr {
	b, t, k := int64(max(s.sequences, 1)), int64(s.rows), int64(s.keys)
	h, kh, w := int64(s.heads), int64(s.keyHeads), int64(s.width)
	bordersQ, bordersK := g.borders(idBordersQ, s), g.borders(idBordersK, s)
	dtype := dnnTypes[s.dtype]
	rows := func(id int64) uintptr {
		return g.matrix(id, dtype, [4]int64{b, h, t, w}, [4]int64{t * h * w, w, h * w, 1}, bordersQ, h*w)
	}
	keys := func(id int64) uintptr {
		return g.matrix(id, dtype, [4]int64{b, kh, k, w}, [4]int64{k * kh * w, w, kh * w, 1}, bordersK, kh*w)
	}
	stats := func() uintptr {
		return g.matrix(idStats, dnnFloat, [4]int64{b, h, t, 1}, [4]int64{t * h, 1, h, 1}, bordersQ, h)
	}
	scores := func(id int64) uintptr {
		return g.matrix(id, dnnFloat, [4]int64{b, h, t, k}, [4]int64{h * t * k, t * k, k, 1}, 0, 0)
	}
	mask, in, out := g.mask(s, scores, bordersQ, bordersK)
	if s.backward {
		d := g.new(dnnBackward)
		for attribute, x := range map[uintptr]uintptr{backwardQ: rows(idQ), backwardK: keys(idK), backwardV: keys(idV),
			backwardO: rows(idO), backwardStats: stats(), backwardDO: rows(idDO), backwardDQ: rows(idDQ),
			backwardDK: keys(idDK), backwardDV: keys(idDV), backwardScale: g.scalar(idScale, dnnFloat)} {
			g.refer(d, attribute, x)
		}
		if bordersQ != 0 {
			g.refer(d, backwardBordersQ, bordersQ)
			g.refer(d, backwardBordersK, bordersK)
			g.ints(d, backwardMostQ, t)
			g.ints(d, backwardMostK, k)
		}
		g.subgraph(d, mask, backwardGraph, backwardGraphIn, backwardGraphOut, in, out)
		return g.finish(d)
	}
	soft := g.new(dnnSoftmax)
	g.refer(soft, softmaxX, scores(idSoftIn))
	g.refer(soft, softmaxY, scores(idSoftOut))
	g.refer(soft, softmaxStats, stats())
	g.finish(soft)
	d := g.new(dnnForward)
	for attribute, x := range map[uintptr]uintptr{forwardQ: rows(idQ), forwardK: keys(idK), forwardV: keys(idV),
		forwardO: rows(idO), forwardScale: g.scalar(idScale, dnnFloat), forwardSoftmax: soft} {
		g.refer(d, attribute, x)
	}
	if bordersQ != 0 {
		g.refer(d, forwardBordersQ, bordersQ)
		g.refer(d, forwardBordersK, bordersK)
	}
	g.subgraph(d, mask, forwardGraph, forwardGraphIn, forwardGraphOut, in, out)
	return g.finish(d)
}

// mask is the graph from scores to those that count, 0 for all: behind the last key of a query, and before
// the first of its window, they are -Inf. The last query sees the last key.
func (g *graph) mask(s attentionShape, scores func(int64) uintptr, bordersQ, bordersK uintptr) (mask uintptr,
	in, out int64) {
	if !s.causal {
		return 0, 0, 0
	}
	var ops []uintptr
	in, out = idScores, idScores
	band := func(to int64, test int32, left uintptr) {
		d := g.new(dnnBand)
		g.refer(d, bandX, scores(out))
		g.refer(d, bandB, g.scalar(idNever, dnnFloat))
		switch {
		case bordersQ != 0:
			g.refer(d, bandBordersQ, bordersQ)
			g.refer(d, bandBordersK, bordersK)
		case left == 0: // the window of a whole sequence has the difference of lengths in its bound
			g.refer(d, bandLengthQ, g.scalar(idLengthQ, dnnInt32))
			g.refer(d, bandLengthK, g.scalar(idLengthK, dnnInt32))
		}
		if left != 0 {
			g.refer(d, bandLeft, left)
		}
		g.refer(d, bandY, scores(to))
		g.enum(d, bandTest, typePointwise, test)
		ops = append(ops, g.finish(d))
		out = to
	}
	band(idCausal, testGE, 0)
	if s.window > 0 {
		dtype := int32(dnnInt32)
		if bordersQ == 0 {
			dtype = dnnFloat
		}
		band(idBanded, testGT, g.scalar(idWindow, dtype))
	}
	mask = g.new(dnnGraph)
	g.refer(mask, graphOps, ops...)
	return g.finish(mask), in, out
}

func (g *graph) subgraph(d, mask uintptr, attribute, attributeIn, attributeOut uintptr, in, out int64) {
	if mask != 0 {
		g.refer(d, attribute, mask)
		g.ints(d, attributeIn, in)
		g.ints(d, attributeOut, out)
	}
}

// whole is the graph of one operation.
func (g *graph) whole(op uintptr) uintptr {
	d := g.new(dnnGraph)
	g.refer(d, graphOps, op)
	return g.finish(d)
}

// scalars are the host's values of a call, by number; a pack refers to them.
func (s attentionShape) scalars(scale float64) map[int64]uint32 {
	window := uint32(s.window)
	if s.sequences == 0 {
		window = math.Float32bits(float32(s.window - s.keys + s.rows))
	}
	all := map[int64]uint32{idScale: math.Float32bits(float32(scale))}
	if s.causal {
		all[idNever] = math.Float32bits(float32(math.Inf(-1)))
		if s.sequences == 0 {
			all[idLengthQ], all[idLengthK] = uint32(s.rows), uint32(s.keys)
		}
	}
	if s.window > 0 {
		all[idWindow] = window
	}
	return all
}
