package cpu

import (
	"fmt"
	"os"
	"strings"
)

// isa is a level of instructions: the primitives that loops are made of. Vectors of one call have the length of the
// first argument unless said otherwise. An output may be an input at the same place. Nothing keeps its arguments.
//
//lfvet:fields one field a kernel that a level of instructions has
type isa struct {
	name string
	amx  bool // products of bfloat16 run on blocks of packed pairs, see gemm_amx.go
	// blocks computes them; pairs multiplies pairs of bfloat16 in registers and gives the number of flops:
	// n times some.
	blocks func(args *amxArgs)
	// rowBlocks is blocks for sums that begin and end in rows of float32: shorter where the sums are; nil if
	// blocks is as good.
	rowBlocks func(args *amxArgs)
	pairs     func(n int) float64
	// mr and nr are the rows and columns of the tile that tile and tileRows compute.
	mr, nr int
	// tile computes n tiles c[mr,nr] (+)= a[mr,k]·b[k,nr]. Element (i,p) of a is a[i+p*aStep], (p,j) of b is
	// b[p*bStep+j]; the tiles are aNext and cNext apart. tileRows reads (i,p) of a at a[i*aStep+p]. acc is 1
	// to add into c.
	tile, tileRows func(a []float32, aStep, aNext int, b []float32, bStep int, c []float32, ldc, cNext int,
		k, n, acc int)
	// narrowRows is tileRows of 16 columns, nil at levels whose tiles have no more.
	narrowRows func(a []float32, aStep, aNext int, b []float32, bStep int, c []float32, ldc, cNext int, k, n, acc int)
	// few are tiles of 2, 4 … mr rows of packed operands, the i-th of 2·(i+1), which ask for what lies far
	// elements from b on, farStep bytes further at each of the k steps; nil at levels that have none.
	few []func(a []float32, aStep int, b []float32, bStep int, c []float32, ldc, k, acc, far, farStep int)
	// low are such tiles for panels of each lowForm but float32, nil where there are none
	low map[lowForm][]lowTile
	// convTile computes tiles of a convolution, and convPairs of one in bfloat16; sumTile and sumPairs those
	// of the gradient of its weights. nil at levels that have none; convPairs and sumPairs also where pairs
	// are not multiplied faster than float32s.
	convTile, convPairs func(args *convArgs)
	sumTile, sumPairs   func(args *sumArgs)
	wino                []*winoMaps // the largest first
	// addRuns is y[i*step+j] += x[i*ld+j] for i < n and j < width.
	addRuns func(y []float32, step int, x []float32, ld, n, width int)
	// transpose writes the columns of 16 rows: dst[p*step+i] = src[i*ld+p] for p < 16*blocks and i < min(16,
	// step). It may write up to 16 elements past the end of the last column.
	transpose func(dst []float32, step int, src []float32, ld, blocks int)
	// rowTimes adds a row times rows of w to c: c[j] += x[p]·w[j*ld+p] for j < lanes and p < lanes*blocks,
	// one p after the other, each with the one rounding that tile has. rowTimesHalf is the same for pairs of bfloat16,
	// two times lanes a block, in the order of blocks; nil at levels where it would not be faster than blocks.
	// Both ask for what is needed next: with each block lanes lines of cache, farRow apart, from w[far+farBlock*i] on.
	rowTimes     func(c, x, w []float32, ld, blocks, far, farRow, farBlock int)
	rowTimesHalf func(c []float32, x, w []uint16, ld, blocks, far, farRow, farBlock int)
	// spread cuts rows into panels: dst[q*next+p*width+i] = src[p*ld+q*width+i] for i < width. It may write
	// up to 16 elements past the end of the last panel.
	spread func(dst []float32, next, width, panels int, src []float32, ld, rows int)
	// copyRows closes up n rows of 16: dst[i*16:] = src[i*ld:][:16]. vnni interleaves pairs of rows in
	// panels of 32 columns: columns 0 to 15 to lo and 16 to 31 to hi, 32 elements a pair, panels next apart.
	// Both for products of bfloat16 only.
	copyRows func(dst, src []float32, ld, n int)
	vnni     func(lo, hi []uint16, next, panels int, src []uint16, ld, pairs int)

	dot    func(a, b []float32) float32
	dot3   func(a, c, b []float32) float32 // Σ a·b·c
	axpy   func(y, x []float32, s float32) // y += s·x
	mulAcc func(y, a, b []float32, s float32)
	add    func(y, a, b []float32)
	mul    func(y, a, b []float32)
	scale  func(y, x []float32, s float32)

	shift   func(y, x []float32, s float32)            // y = x + s
	gate    func(y, x []float32, a, b float32)         // y = 1/(1+exp(-(a·x + b·x³)))
	gelu    func(y, x []float32)                       // y = x·Φ(x)
	geluBwd func(dx, dy, x []float32)                  // dx = dy·(Φ(x) + x·φ(x))
	gateBwd func(dx, dy, x, s []float32, a, b float32) // dx = dy·s·(1 + x·(1-s)·(a + 3b·x²)), s of gate

	swiglu    func(y, g, u []float32)
	swigluBwd func(dg, du, dy, g, u []float32)
	norm      func(y, x, w []float32, r float32)        // y = x·r·w
	normDX    func(y, dy, x, w []float32, r, k float32) // y = r·(dy·w - x·k)
	sum       func(x []float32) float32                 // Σ x
	centred   func(x []float32, mean float32) float32   // Σ (x - mean)²
	// moments are sum, and centred with the mean of n numbers
	moments func(x []float32, n float32) (sum, squares float32)
	layer   func(y, x, w, b []float32, mean, r float32) // y = (x - mean)·r·w + b
	max     func(x []float32) float32                   // -Inf for none; NaN is ignored
	relu    func(y, x []float32)                        // y = max(x, 0), a NaN for one
	reluBwd func(dx, dy, x []float32)                   // dx = dy where x is above 0 or a NaN, else 0
	// larger is best = max(best, v), a NaN for one, and largerAt also at = p where that is v: greater, or a
	// NaN before which there was none.
	larger   func(best, v []float32)
	largerAt func(best, v []float32, at []int32, p int32)
	// absMax is max |x| and absMaxes y = max(y, |x|), of which a NaN is greater than all. roundBits and
	// roundEach are y = q(x·f)·back with q the nearest number of the format at h, of two the even one.
	absMax    func(x []float32) float32
	absMaxes  func(y, x []float32)
	roundBits func(y, x []float32, f, back float32, h *roundConst)
	roundEach func(y, x, f, back []float32, h *roundConst)
	// chances is the same of e2m1 by chance, of a row. butterfly is two stages of kernels.Hadamard.
	chances   func(y, x, f, back []float32, seed int)
	butterfly func(a, b, c, d []float32, signs *[4]float32, by float32)
	// runMaxes are absMax of runs of sixteen of x, and runs is each x sixteen times.
	runMaxes, runs func(y, x []float32)
	exp            func(y, x []float32, scale, shift,
		c float32) float32 // y = c·exp(x·scale + shift), and Σ y
	// soft is y = 2^(x·scale - most) with most = max(top, x·scale), and Σ y. softGrad is p = 2^(s·scale -
	// lse) and ds = (dp - delta)·p·factor. The others round to bfloat16, for products of it.
	soft     func(y, x []float32, scale, top float32) (most, sum float32)
	softHalf func(y []uint16, x []float32, scale, top float32) (most, sum float32)
	// softPast and softHalfPast write past the caches to a y that is aligned to a cache line.
	softPast     func(y, x []float32, scale, top float32) (most, sum float32)
	softHalfPast func(y []uint16, x []float32, scale, top float32) (most, sum float32)
	softGrad     func(p, ds, s, dp []float32, scale, lse, delta, factor float32)
	softGradHalf func(p, ds []uint16, s, dp []float32, scale, lse, delta, factor float32)
	// rope rotates pairs (i, i+r), ropePairs (2i, 2i+1), of heads of the given width; r is the length of cos.
	rope, ropePairs func(y, x, cos, sin []float32, heads, width int, sign float32)

	fromBF16, fromF16 func(y []float32, x []uint16)
	toBF16, toF16     func(y []uint16, x []float32)
	// nibbles is y = table[code] of codes of four bits, the first of a byte in its low half.
	nibbles func(y []float32, codes []byte, table *[16]float32)

	// half are primitives that read and write bfloat16; nil at levels that do not round to it in one instruction.
	half *halves

	adamW      func(p, m, v, g []float32, h *adamConst)
	sgd        func(p, m, g []float32, h *sgdConst)
	sumSquares func(x []float32) float64
	// fixedAdd is q += x·h[0], rounded by adding h[1], of whole vectors; nil where it is as fast without
	fixedAdd func(q []int64, x []float32, h *float64)

	// peak runs 12 chains of multiply-adds of 2*lanes flops n times, on the 16 numbers of x:
	// the yardstick of benchmarks.
	peak  func(n int, x []float32)
	lanes int // of a vector of float32s
}

// halves are primitives on bfloat16, each computed in float32 and rounded once, as isa has them on float32.
type halves struct {
	add, mul  func(y, a, b []uint16)
	scale     func(y, x []uint16, s float32)
	swiglu    func(y, g, u []uint16)
	swigluBwd func(dg, du, dy, g, u []uint16)
	gelu      func(y, x []uint16)
	geluBwd   func(dx, dy, x []uint16)
	dot       func(a, b []uint16) float32
	dot3      func(a, c []uint16, b []float32) float32
	mulAcc    func(y []float32, a, b []uint16, s float32)
	norm      func(y, x []uint16, w []float32, r float32)
	normDX    func(y, dy, x []uint16, w []float32, r, k float32)
	sum       func(x []uint16) float32
	centred   func(x []uint16, mean float32) float32
	layer     func(y, x []uint16, w, b []float32, mean, r float32)
	rope      func(y, x []uint16, cos, sin []float32, heads, width int, sign float32)
}

// winoMaps are the linear maps of Winograd's F(m×m, 3×3) along one axis, for n numbers of each row side by
// side: row i of x is at i·xs, and of y at i·ys; strides may be negative, and y may be x. A tile has m+2
// places; the points are 0, ±1, ±2 and ∞ for m of 4, and 0, ±1 and ∞ for m of 2.
type winoMaps struct {
	side      int                                               // m
	in        func(y []float32, ys int, x []float32, xs, n int) // inputs to places
	out       func(y []float32, ys int, x []float32, xs, n int) // places to outputs
	kernel    func(y []float32, ys int, x []float32, xs, n int) // 3 weights to places
	cotangent func(y []float32, ys int, x []float32, xs, n int) // cotangents of outputs to places
	gradient  func(y []float32, ys int, x []float32, xs, n int) // places to 3 gradients of weights
}

// adamConst are the constants of one AdamW step.
type adamConst struct {
	factor, keep       float32 // what gradients and parameters are multiplied with
	beta2, m1, m2      float32 // β2, 1-β1, 1-β2
	step, rootInv, eps float32 // lr/c1, 1/sqrt(c2), ε
}

// sgdConst are the constants of one step of SGD.
type sgdConst struct{ factor, decay, momentum, lr float32 }

// levels are what this build and machine offer, the fastest first.
func levels() []*isa { return append(native(), &portable) }

// Levels lists the levels of instructions that this machine has, the fastest first: of amx, avx512bf16,
// avx512half, avx512, avx2, neon and go.
func Levels() []string {
	var l []string
	for _, k := range levels() {
		l = append(l, k.name)
	}
	return l
}

// Level is the level that backends of this process compute with, "" where LFACTOR_CPU names one that the
// machine has not. Levels sum in orders of their own: the bits of results are those of a level.
func Level() string {
	k, err := detect()
	if err != nil {
		return ""
	}
	return k.name
}

// detect picks the fastest level, or the one that LFACTOR_CPU names.
func detect() (*isa, error) {
	want := os.Getenv("LFACTOR_CPU")
	for _, k := range levels() {
		if want == "" || want == k.name {
			return k, nil
		}
	}
	return nil, fmt.Errorf("LFACTOR_CPU=%s: this machine has %s", want, strings.Join(Levels(), ", "))
}
