package cpu

import "unsafe"

//go:generate sh -c "cd asm && go run . -out ../asm_amd64.s -stubs ../asm_amd64.go -pkg cpu -amx ../amx_amd64.s"
//go:generate sh -c "cd asm && go run . -part precision -out ../precision_amd64.s -stubs ../precision_amd64.go -pkg cpu"
//go:generate sh -c "cd asm && go run ./neon -out ../asm_arm64.s -stubs ../asm_arm64.go"

// Bits of CPUID and of XCR0.
const (
	leaf1FMA    = 1 << 12
	leaf1F16C   = 1 << 29
	leaf1Save   = 1<<27 | 1<<28                 // OSXSAVE, AVX
	leaf7AVX2   = 1<<5 | 1<<8                   // AVX2, BMI2
	leaf7AVX512 = 1<<16 | 1<<17 | 1<<30 | 1<<31 // F, DQ, BW, VL
	leaf7AMX    = 1<<22 | 1<<24                 // BF16, TILE (EDX)
	leaf71BF16  = 1 << 5                        // AVX512_BF16
	stateTiles  = 1<<17 | 1<<18
	stateAVX    = 1<<1 | 1<<2
	makerIntel  = 0x756e6547 // "Genu" of GenuineIntel, EBX of leaf 0
	stateAVX512 = stateAVX | 1<<5 | 1<<6 | 1<<7
)

func has(x, bits uint32) bool { return x&bits == bits }

// native lists the assembly levels of this machine by its feature bits, and by its maker where a feature is
// not what makes products fast: Intel's processors multiply vectors of pairs (VDPBF16PS) at half the rate of
// float32 vectors (89 and 179 GFLOP/s of a core of Emerald Rapids), AMD's at twice. It is never by timing,
// which would let bits depend on what else a machine does.
func native() []*isa {
	top, maker, _, _ := cpuid(0, 0)
	_, _, c1, _ := cpuid(1, 0)
	if top < 7 || !has(c1, leaf1FMA|leaf1F16C|leaf1Save) || !has(xgetbv(), stateAVX) {
		return nil
	}
	var l []*isa
	_, b7, _, d7 := cpuid(7, 0)
	if !has(b7, leaf7AVX2) {
		return nil
	}
	if has(b7, leaf7AVX512) && has(xgetbv(), stateAVX512) {
		a71, _, _, _ := cpuid(7, 1)
		if has(d7, leaf7AMX) && has(a71, leaf71BF16) && has(xgetbv(), stateTiles) && permitTiles() {
			l = append(l, &amx)
		}
		switch {
		case !has(a71, leaf71BF16):
			l = append(l, &avx512)
		case maker == makerIntel:
			l = append(l, &avx512half, &avx512, &avx512bf16)
		default:
			l = append(l, &avx512bf16, &avx512)
		}
	}
	return append(l, &avx2)
}

type fewTile = func(a []float32, aStep int, b []float32, bStep int, c []float32, ldc, k, acc, far, farStep int)

var (
	fewZ = []fewTile{few2Z, few4Z, few6Z, few8Z, few10Z, few12Z}
	fewY = []fewTile{few2Y, few4Y, few6Y}
	lowZ = map[lowForm][]lowTile{
		lowHalf:    {fewHalf1Z, fewHalf2Z, fewHalf4Z, fewHalf6Z, fewHalf8Z, fewHalf10Z, fewHalf12Z},
		lowBrain:   {fewBrain1Z, fewBrain2Z, fewBrain4Z, fewBrain6Z, fewBrain8Z, fewBrain10Z, fewBrain12Z},
		lowCodes:   {fewCodes1Z, fewCodes2Z, fewCodes4Z, fewCodes6Z, fewCodes8Z, fewCodes10Z, fewCodes12Z},
		lowMoved:   {fewMoved1Z, fewMoved2Z, fewMoved4Z, fewMoved6Z, fewMoved8Z, fewMoved10Z, fewMoved12Z},
		lowNibbles: {fewNibbles1Z, fewNibbles2Z, fewNibbles4Z, fewNibbles6Z, fewNibbles8Z, fewNibbles10Z, fewNibbles12Z},
	}
	lowY = map[lowForm][]lowTile{
		lowHalf:    {fewHalf1Y, fewHalf2Y, fewHalf4Y, fewHalf6Y},
		lowBrain:   {fewBrain1Y, fewBrain2Y, fewBrain4Y, fewBrain6Y},
		lowCodes:   {fewCodes1Y, fewCodes2Y, fewCodes4Y, fewCodes6Y},
		lowMoved:   {fewMoved1Y, fewMoved2Y, fewMoved4Y, fewMoved6Y},
		lowNibbles: {fewNibbles1Y, fewNibbles2Y, fewNibbles4Y, fewNibbles6Y},
	}
)

var avx512 = isa{
	name: "avx512", mr: 12, nr: 32, tile: tileZ, tileRows: tileRowsZ, narrowRows: narrowRowsZ, few: fewZ, low: lowZ, transpose: transposeZ, spread: spreadZ, rowTimes: rowTimesZ,
	dot: dotZ, dot3: dot3Z, axpy: axpyZ, mulAcc: mulAccZ, add: addZ, mul: mulZ, scale: scaleZ,
	shift: shiftZ, gate: gateZ, gelu: geluZ, geluBwd: geluBwdZ, gateBwd: gateBwdZ, swiglu: swigluZ, swigluBwd: swigluBwdZ, norm: normZ, normDX: normDXZ, sum: sumZ, centred: centredZ, moments: momentsZ, layer: layerZ, max: maxZ, exp: expZ, soft: softZ, softPast: softPastZ, softGrad: softGradZ,
	rope: ropeZ, ropePairs: wholePairs(ropePairsZ, 8),
	nibbles: sixteens(nibblesZ), fromBF16: fromBF16Z, fromF16: fromF16Z, toBF16: toBF16Z, toF16: toF16Z,
	adamW:      func(p, m, v, g []float32, h *adamConst) { adamWZ(p, m, v, g, (*float32)(unsafe.Pointer(h))) },
	sgd:        func(p, m, g []float32, h *sgdConst) { sgdZ(p, m, g, (*float32)(unsafe.Pointer(h))) },
	sumSquares: sumSquaresZ, fixedAdd: fixedAddZ, peak: peakZ, lanes: 16,
	convTile: func(a *convArgs) { convTileZ((*int)(unsafe.Pointer(a))) },
	sumTile:  func(a *sumArgs) { sumTileZ((*int)(unsafe.Pointer(a))) },
	addRuns:  addRunsZ,
	relu:     reluZ, reluBwd: reluBwdZ, larger: largerZ, largerAt: largerAtZ,
	absMax: absMaxZ, absMaxes: absMaxesZ,
	roundBits: func(y, x []float32, f, back float32, h *roundConst) {
		roundBitsZ(y, x, f, back, (*float32)(unsafe.Pointer(h)))
	},
	chances: chancesZ, runMaxes: runMaxesZ, runs: runsZ,
	butterfly: func(a, b, c, d []float32, signs *[4]float32, by float32) {
		butterflyZ(a, b, c, d, &signs[0], by)
	},
	roundEach: func(y, x, f, back []float32, h *roundConst) {
		roundEachZ(y, x, f, back, (*float32)(unsafe.Pointer(h)))
	},
	wino: []*winoMaps{{4, winoInZ, winoOutZ, winoKernelZ, winoCotangentZ, winoGradientZ},
		{2, winoIn2Z, winoOut2Z, winoKernel2Z, winoCotangent2Z, winoGradient2Z}},
}

// amx is avx512 with products of bfloat16 on tiles.
var amx = func() isa {
	k := avx512
	k.name, k.amx, k.vnni, k.copyRows = "amx", true, vnniZ, copyRowsZ
	k.softHalf, k.softHalfPast, k.softGradHalf, k.toBF16 = softHalfZ, softHalfPastZ, softGradHalfZ, roundHalfZ
	k.half = &halves{add: addHalfZ, mul: mulHalfZ, scale: scaleHalfZ, swiglu: swigluHalfZ, swigluBwd: swigluBwdHalfZ, gelu: geluHalfZ, geluBwd: geluBwdHalfZ, dot: dotHalfZ, dot3: dot3HalfZ,
		mulAcc: mulAccHalfZ, norm: normHalfZ, normDX: normDXHalfZ, sum: sumHalfZ,
		centred: centredHalfZ, layer: layerHalfZ, rope: ropeHalfZ}
	k.blocks = amxBlocks
	k.pairs = func(n int) float64 {
		amxPeak(allTiles, n)
		return float64(n) * 4 * 2 * 16 * 16 * 32
	}
	return k
}()

// avx512bf16 is avx512 with products of bfloat16 on vectors of pairs.
var avx512bf16 = func() isa {
	k := amx
	k.name, k.blocks, k.rowBlocks, k.rowTimesHalf = "avx512bf16", dotBlocks, dotInRows, rowTimesHalfZ
	k.convPairs = func(a *convArgs) { convPairsZ((*int)(unsafe.Pointer(a))) }
	k.sumPairs = func(a *sumArgs) { sumPairsZ((*int)(unsafe.Pointer(a))) }
	k.pairs = func(n int) float64 {
		dotPeak(16 * n)
		return float64(n) * 16 * 16 * 2 * 32
	}
	return k
}()

// avx512half is avx512 that rounds to bfloat16 in one instruction, and multiplies it as float32.
var avx512half = func() isa {
	k := amx
	k.name, k.amx, k.vnni, k.copyRows = "avx512half", false, avx512.vnni, avx512.copyRows
	k.blocks, k.pairs = avx512.blocks, avx512.pairs
	return k
}()

var avx2 = isa{
	name: "avx2", mr: 6, nr: 16, tile: tileY, tileRows: tileRowsY, few: fewY, low: lowY, transpose: transposeY, spread: spreadY, rowTimes: rowTimesY,
	dot: dotY, dot3: dot3Y, axpy: axpyY, mulAcc: mulAccY, add: addY, mul: mulY, scale: scaleY,
	shift: shiftY, gate: gateY, gelu: geluY, geluBwd: geluBwdY, gateBwd: gateBwdY, swiglu: swigluY, swigluBwd: swigluBwdY, norm: normY, normDX: normDXY, sum: sumY, centred: centredY, moments: momentsY, layer: layerY, max: maxY, exp: expY, soft: softY, softPast: softY, softGrad: softGradY,
	rope: ropeY, ropePairs: wholePairs(ropePairsY, 4),
	nibbles: sixteens(nibblesY), fromBF16: wholeFrom(fromBF16Y, goFromBF16), fromF16: wholeFrom(fromF16Y, goFromF16),
	toBF16: wholeTo(toBF16Y, goToBF16), toF16: wholeTo(toF16Y, goToF16),
	adamW:      func(p, m, v, g []float32, h *adamConst) { adamWY(p, m, v, g, (*float32)(unsafe.Pointer(h))) },
	sgd:        func(p, m, g []float32, h *sgdConst) { sgdY(p, m, g, (*float32)(unsafe.Pointer(h))) },
	sumSquares: sumSquaresY, fixedAdd: fixedAddY, peak: peakY, lanes: 8,
	convTile: func(a *convArgs) { convTileY((*int)(unsafe.Pointer(a))) },
	sumTile:  func(a *sumArgs) { sumTileY((*int)(unsafe.Pointer(a))) },
	addRuns:  addRunsY,
	relu:     reluY, reluBwd: reluBwdY, larger: largerY, largerAt: largerAtY,
	absMax: absMaxY, absMaxes: absMaxesY,
	roundBits: func(y, x []float32, f, back float32, h *roundConst) {
		roundBitsY(y, x, f, back, (*float32)(unsafe.Pointer(h)))
	},
	chances: chancesY, runMaxes: runMaxesY, runs: runsY,
	butterfly: func(a, b, c, d []float32, signs *[4]float32, by float32) {
		butterflyY(a, b, c, d, &signs[0], by)
	},
	roundEach: func(y, x, f, back []float32, h *roundConst) {
		roundEachY(y, x, f, back, (*float32)(unsafe.Pointer(h)))
	},
	wino: []*winoMaps{{4, winoInY, winoOutY, winoKernelY, winoCotangentY, winoGradientY},
		{2, winoIn2Y, winoOut2Y, winoKernel2Y, winoCotangent2Y, winoGradient2Y}},
}

// wholePairs leaves lengths that are no multiple of the vector's to plain Go.
func wholePairs(f func(y, x, cos, sin []float32, heads, width int, sign float32), lanes int) func(y, x, cos, sin []float32, heads, width int, sign float32) {
	return func(y, x, cos, sin []float32, heads, width int, sign float32) {
		if len(cos)%lanes != 0 {
			goRopePairs(y, x, cos, sin, heads, width, sign)
			return
		}
		f(y, x, cos, sin, heads, width, sign)
	}
}

// wholeFrom and wholeTo convert the last few elements in plain Go, because AVX2 cannot mask 16-bit lanes.
func wholeFrom(f, rest func([]float32, []uint16)) func([]float32, []uint16) {
	return func(y []float32, x []uint16) {
		n := len(y) &^ 7
		f(y[:n], x)
		rest(y[n:], x[n:])
	}
}

// wholeTo runs f on whole vectors of 8 and rest on what is left, where the instruction has no masked form.
func wholeTo(f, rest func([]uint16, []float32)) func([]uint16, []float32) {
	return func(y []uint16, x []float32) {
		n := len(y) &^ 7
		f(y[:n], x)
		rest(y[n:], x[n:])
	}
}

// sixteens runs f on whole runs of sixteen numbers and plain Go on what is left.
func sixteens(f func([]float32, []byte, *[16]float32)) func([]float32, []byte, *[16]float32) {
	return func(y []float32, codes []byte, table *[16]float32) {
		n := len(y) &^ 15
		f(y[:n], codes[:n/2], table)
		goNibbles(y[n:], codes[n/2:], table)
	}
}
