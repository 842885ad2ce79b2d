package media

import "slices"

// weightLow is the number of bits in the lower part of a weight. The two parts of 16 bits each are
// multiplied apart, as vectors of 16-bit products are the fast ones; their sums add up to the same 32 bits.
const weightLow = 11

// packed are taps in groups of a fixed size that begin where a whole group fits.
type packed struct {
	first []int32
	n     int      // groups of a pixel
	w     []uint16 // of each group: the upper parts, then the lower parts
}

// pack groups weights; false where the line of length pixels has no room for the groups.
func (t *taps) pack(group, length int) (k packed, ok bool) {
	k.n = over(int(slices.Max(t.count)), group)
	if k.n*group > length {
		return k, false
	}
	k.first = make([]int32, len(t.first))
	k.w = make([]uint16, len(t.first)*k.n*group*2)
	for i, first := range t.first {
		k.first[i] = min(first, int32(length-k.n*group))
		to := k.w[i*k.n*group*2:]
		for j, w := range t.of(i) {
			j += int(first - k.first[i])
			at := j/group*group*2 + j%group
			to[at], to[at+group] = uint16(w>>weightLow), uint16(w&(1<<weightLow-1))
		}
	}
	return k, true
}

// rowsNative resizes rows, but for the last where there is no room behind it, and returns how many.
func (p *Image) rowsNative(out *Image, t *taps) int {
	k, ok := t.pack(4, p.W)
	if !ok {
		return 0
	}
	n := p.H
	if cap(p.Pix)-p.W*p.H*3 < slack {
		n--
	}
	per, end := k.n*8, out.W-1
	for y := 0; y < n; y += 2 { // rows go two by two
		dst, src, dstStep, srcStep := y*out.W*3, y*p.W*3, out.W*3, p.W*3
		if y+1 == n {
			dstStep, srcStep = 0, 0
		}
		rowSums(&out.Pix[dst], &p.Pix[src], dstStep, srcStep, &k.first[0], k.n, &k.w[0], end, int(t.bits))
		// what the last pixel writes over its end is the beginning of the next row
		var last [8]byte
		rowSums(&last[0], &p.Pix[src], 4, srcStep, &k.first[end], k.n, &k.w[end*per], 1, int(t.bits))
		copy(out.Pix[dst+end*3:], last[:3])
		copy(out.Pix[dst+dstStep+end*3:], last[4:7])
	}
	return n
}

// columnsNative resizes columns; the last 32 bytes of a row may be done twice.
func (p *Image) columnsNative(out *Image, t *taps) bool {
	n := p.W * 3
	k, ok := t.pack(2, p.H)
	if !ok || n < 32 {
		return false
	}
	for y, first := range k.first {
		w := &k.w[y*k.n*4]
		src, dst := p.Pix[int(first)*n:], out.Pix[y*n:]
		columnSums(&dst[0], &src[0], n, k.n, w, n/32, int(t.bits))
		if n%32 > 0 {
			columnSums(&dst[n-32], &src[n-32], n, k.n, w, 1, int(t.bits))
		}
	}
	return true
}
