package gguf

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Blocks of 256 numbers in parts with a scale each, which are numbers of few bits too. Scales and least
// values are found by search, as llama.cpp's reference does (quantize_row_*_K_ref of ggml-quants.c), and
// give its bits: products are rounded to float32 before a sum, in its order.

const (
	blockK = 256
	// leastMagnitude is that of a part that is not taken as zeros.
	leastMagnitude = 1e-15
)

// nearest is the whole number nearest to x of magnitude below 2^22, of two the even one.
func nearest(x float32) int {
	return int(math.Float32bits(x+12582912)&0x7fffff) - 0x400000
}

func within(x, low, high int) int { return max(low, min(high, x)) }

func abs(x float32) float32 { return float32(math.Abs(float64(x))) }

// spanSearch says how spanScale looks for a scale: steps scales from (codes+from)/span on, each larger by each.
type spanSearch struct {
	most       int // the greatest code
	from, each float32
	steps      int
	straight   bool // errors count by magnitude, not by their squares
}

// spanScale finds scale and least value (as what is taken away) with which codes from 0 on have the least
// sum of weighted errors.
func (s spanSearch) spanScale(x, weights []float32) (scale, less float32) {
	low, high := span(x)
	low = min(low, 0)
	if high == low {
		return 0, -low
	}
	var sumW, sumX float32
	for i, v := range x {
		sumW += weights[i]
		sumX += float32(weights[i] * v)
	}
	codes := make([]int, len(x))
	round := func(by, low float32) {
		for i, v := range x {
			codes[i] = within(nearest(float32(by*(v-low))), 0, s.most)
		}
	}
	failure := func(scale, low float32) (sum float32) {
		for i, v := range x {
			diff := float32(scale*float32(codes[i])) + low - v
			if s.straight {
				diff = abs(diff)
			} else {
				diff *= diff
			}
			sum += float32(weights[i] * diff)
		}
		return sum
	}
	by := float32(s.most) / (high - low)
	scale = 1 / by
	round(by, low)
	best := failure(scale, low)
	for step := range s.steps + 1 {
		round((s.from+float32(s.each*float32(step))+float32(s.most))/(high-low), low)
		var sumL, sumL2, sumXL float32
		for i, v := range x {
			w, l := weights[i], float32(codes[i])
			wl := w * l
			sumL += wl
			sumL2 += float32(wl * l)
			sumXL += float32(wl * v)
		}
		det := float32(sumW*sumL2) - float32(sumL*sumL)
		if !(det > 0) {
			continue
		}
		one := (float32(sumW*sumXL) - float32(sumX*sumL)) / det
		least := (float32(sumL2*sumX) - float32(sumL*sumXL)) / det
		if least > 0 {
			one, least = sumXL/sumL2, 0
		}
		if e := failure(one, least); e < best {
			best, scale, low = e, one, least
		}
	}
	return scale, -low
}

// evenWeights weigh a part's numbers by their magnitude and the part's.
func evenWeights(x []float32) []float32 {
	sum := float32(0)
	for _, v := range x {
		sum += float32(v * v)
	}
	mean := float32(math.Sqrt(float64(sum / float32(len(x)))))
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = mean + abs(v)
	}
	return out
}

// spans are the parts of a block of a type with scales and least values: codes of scales up to most with
// their factor, as float16, and codes of the numbers.
type spans struct {
	scales, lows []int
	scale, less  float32
	d, dmin      uint16
	codes        [blockK]int
}

func spansOf(x []float32, part, most int, search spanSearch, weights func(x []float32) []float32) *spans {
	s := &spans{}
	n := blockK / part
	scales, lows := make([]float32, n), make([]float32, n)
	for i := range n {
		one := x[i*part : (i+1)*part]
		scales[i], lows[i] = search.spanScale(one, weights(one))
	}
	whole := func(v []float32) (codes []int, d uint16) {
		top := max(0, slices.Max(v))
		by := float32(0)
		if top > 0 {
			by = float32(most) / top
		}
		for _, one := range v {
			codes = append(codes, within(nearest(float32(by*one)), 0, most))
		}
		return codes, tensor.F16Bits(top / float32(most))
	}
	s.scales, s.d = whole(scales)
	s.lows, s.dmin = whole(lows)
	s.scale, s.less = tensor.F16Value(s.d), tensor.F16Value(s.dmin)
	for i, v := range x {
		d := s.scale * float32(s.scales[i/part])
		if d == 0 {
			// as the search left them: all codes give the same number
			continue
		}
		s.codes[i] = within(nearest((v+float32(s.less*float32(s.lows[i/part])))/d), 0, search.most)
	}
	return s
}

// appendTwos appends codes of two bits: those of 128 numbers in 32 bytes, 32 of them in the same bits.
func appendTwos(out []byte, codes []int) []byte {
	for ; len(codes) > 0; codes = codes[128:] {
		for i := range 32 {
			out = append(out, byte(codes[i]&3|codes[i+32]&3<<2|codes[i+64]&3<<4|codes[i+96]&3<<6))
		}
	}
	return out
}

func encodeQ2K(out []byte, x []float32) []byte {
	s := spansOf(x, 16, 15, spanSearch{most: 3, from: -0.5, each: 0.1, steps: 15, straight: true},
		func(x []float32) []float32 {
			w := make([]float32, len(x))
			for i, v := range x {
				w[i] = abs(v)
			}
			return w
		})
	for i, c := range s.scales {
		out = append(out, byte(c|s.lows[i]<<4))
	}
	return appendWord(appendWord(appendTwos(out, s.codes[:]), s.d), s.dmin)
}

func appendWord(out []byte, w uint16) []byte { return append(out, byte(w), byte(w>>8)) }

func encodeQ4K(out []byte, x []float32) []byte {
	s := spansOf(x, 32, 63, spanSearch{most: 15, from: -1, each: 0.1, steps: 20, straight: false}, evenWeights)
	return appendNibbles(s.appendScales(out), s.codes[:])
}

func encodeQ5K(out []byte, x []float32) []byte {
	s := spansOf(x, 32, 63, spanSearch{most: 31, from: -0.5, each: 0.1, steps: 15, straight: false}, evenWeights)
	out = s.appendScales(out)
	for i := range 32 {
		high := 0
		for part := range 8 {
			high |= s.codes[part*32+i] >> 4 << part
		}
		out = append(out, byte(high))
	}
	return appendNibbles(out, s.codes[:])
}

// appendScales appends the factors, and scales and least values of eight parts, of six bits each in 12 bytes.
func (s *spans) appendScales(out []byte) []byte {
	out = appendWord(appendWord(out, s.d), s.dmin)
	var b [12]byte
	for j := range 8 {
		scale, low := byte(s.scales[j]), byte(s.lows[j])
		if j < 4 {
			b[j] |= scale
			b[j+4] |= low
		} else {
			b[j+4] = scale&15 | low&15<<4
			b[j-4] |= scale >> 4 << 6
			b[j] |= low >> 4 << 6
		}
	}
	return append(out, b[:]...)
}

// appendNibbles appends the low four bits of codes: 32 in the low halves of bytes, the next 32 in the high ones.
func appendNibbles(out []byte, codes []int) []byte {
	for ; len(codes) > 0; codes = codes[64:] {
		for i := range 32 {
			out = append(out, byte(codes[i]&15|codes[i+32]&15<<4))
		}
	}
	return out
}

// evenScale finds the scale with which codes in [-most, most) have the least sum of squares of errors,
// weighed by the squares of numbers.
func evenScale(x []float32, most int) float32 {
	top := peak(x)
	if abs(top) < leastMagnitude {
		return 0
	}
	sums := func(by float32) (lx, l2 float32) {
		for _, v := range x {
			l := float32(within(nearest(float32(by*v)), -most, most-1))
			w := v * v
			lx += float32(float32(w*v) * l)
			l2 += float32(float32(w*l) * l)
		}
		return lx, l2
	}
	lx, l2 := sums(-float32(most) / top)
	scale := float32(0)
	if l2 != 0 {
		scale = lx / l2
	}
	best := scale * lx
	for step := -9; step <= 9; step++ {
		if step == 0 {
			continue
		}
		lx, l2 := sums(-(float32(most) + float32(float32(0.1)*float32(step))) / top)
		if l2 > 0 && float32(lx*lx) > float32(best*l2) {
			scale = lx / l2
			best = scale * lx
		}
	}
	return scale
}

func encodeQ6K(out []byte, x []float32) []byte {
	var scales [16]float32
	top := float32(0)
	for i := range scales {
		if scales[i] = evenScale(x[i*16:(i+1)*16], 32); abs(scales[i]) > abs(top) {
			top = scales[i]
		}
	}
	if abs(top) < leastMagnitude {
		return append(out, make([]byte, 210)...)
	}
	by := -128 / top
	d := tensor.F16Bits(1 / by)
	var codes [blockK]int
	var whole [16]byte
	for i, s := range scales {
		c := min(127, nearest(float32(by*s)))
		whole[i] = byte(int8(c))
		step := tensor.F16Value(d) * float32(c)
		for j, v := range x[i*16 : (i+1)*16] {
			if codes[i*16+j] = 32; step != 0 {
				codes[i*16+j] = within(nearest(v/step), -32, 31) + 32
			}
		}
	}
	for j := 0; j < blockK; j += 128 {
		for i := range 64 {
			out = append(out, byte(codes[j+i]&15|codes[j+i+64]&15<<4))
		}
	}
	for i := range codes {
		codes[i] >>= 4
	}
	return appendWord(append(appendTwos(out, codes[:]), whole[:]...), d)
}

// triesQ3 is how often evenCodes goes over a part.
const triesQ3 = 5

// evenCodes finds the scale for codes in [-4, 4) by moving one code after the other to where the sum of
// weighted squares of errors is less.
func evenCodes(x []float32) float32 {
	const most = 4
	top := peak(x)
	if abs(top) < leastMagnitude {
		return 0
	}
	by := -float32(most) / top
	var lx, l2 float32
	codes := make([]float32, len(x))
	for i, v := range x {
		codes[i] = float32(within(nearest(float32(by*v)), -most, most-1))
		w := v * v
		lx += float32(float32(w*v) * codes[i])
		l2 += float32(float32(w*codes[i]) * codes[i])
	}
	for range triesQ3 {
		moved := false
		for i, v := range x {
			w, l := v*v, codes[i]
			x1 := lx - float32(float32(w*v)*l)
			if !(x1 > 0) {
				continue
			}
			x2 := l2 - float32(float32(w*l)*l)
			next := float32(within(nearest(float32(v*x2)/x1), -most, most-1))
			if next == l {
				continue
			}
			x1 += float32(float32(w*v) * next)
			x2 += float32(float32(w*next) * next)
			if x2 > 0 && float32(float32(x1*x1)*l2) > float32(float32(lx*lx)*x2) {
				codes[i], lx, l2, moved = next, x1, x2, true
			}
		}
		if !moved {
			break
		}
	}
	if l2 > 0 {
		return lx / l2
	}
	return 0
}

func encodeQ3K(out []byte, x []float32) []byte {
	var scales [16]float32
	top := float32(0)
	for i := range scales {
		if scales[i] = evenCodes(x[i*16 : (i+1)*16]); abs(scales[i]) > abs(top) {
			top = scales[i]
		}
	}
	var whole [12]byte
	var d uint16
	if top != 0 {
		by := -32 / top
		d = tensor.F16Bits(1 / by)
		for i, s := range scales {
			c := byte(within(nearest(float32(by*s)), -32, 31) + 32)
			whole[i%8] |= c & 15 << (i / 8 * 4)
			whole[8+i%4] |= c >> 4 << (i / 4 * 2)
		}
	}
	var codes [blockK]int
	var high [32]byte
	for i, v := range x {
		step := tensor.F16Value(d) * float32(scaleQ3(i/16, whole[:]))
		if codes[i] = 4; step != 0 {
			codes[i] = within(nearest(v/step), -4, 3) + 4
		}
		high[i%32] |= byte(codes[i]>>2) << (i / 32)
	}
	return appendWord(append(appendTwos(append(out, high[:]...), codes[:]), whole[:]...), d)
}
