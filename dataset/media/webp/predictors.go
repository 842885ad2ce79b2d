package webp

// predictors add the predictions of each mode to n pixels; above is the one above the first.
var predictors = [14]func(px, above *uint32, n int){predict0, predict1, predict2, predict3, predict4, predict5,
	predict6, predict7, predict8, predict9, predict10, predict11, predict12, predict13}

// addPredicted adds to n pixels from one on what a mode makes likely of their neighbours.
func addPredicted(mode int, pix []uint32, at, n, w int) {
	if mode >= len(predictors) { // modes without a meaning are as the first
		mode = 0
	}
	above := max(at-w, 0) // the first row has none, and does not ask
	switch {
	case native:
		predictors[mode](&pix[at:][:n][0], &pix[above], n)
		return
	case mode == 1:
		for i := at; i < at+n; i++ {
			pix[i] = addPixels(pix[i], pix[i-1])
		}
		return
	}
	for i := at; i < at+n; i++ {
		pix[i] = addPixels(pix[i], likely(mode, pix[i-1], pix[i-w], pix[i-w-1], pix[i-w+1]))
	}
}

// likely is a prediction (RFC 9649, section 4.1) from the pixels to the left, above, and above to the left
// and the right.
func likely(mode int, left, up, corner, right uint32) uint32 {
	switch mode {
	case 1:
		return left
	case 2:
		return up
	case 3:
		return right
	case 4:
		return corner
	case 5:
		return meanPixel(meanPixel(left, right), up)
	case 6:
		return meanPixel(left, corner)
	case 7:
		return meanPixel(left, up)
	case 8:
		return meanPixel(corner, up)
	case 9:
		return meanPixel(up, right)
	case 10:
		return meanPixel(meanPixel(left, corner), meanPixel(up, right))
	case 11:
		return nearer(left, up, corner)
	case 12:
		return eachByte(func(l, u, c int32) int32 { return l + u - c }, left, up, corner)
	case 13:
		m := meanPixel(left, up)
		return eachByte(func(m, c, _ int32) int32 { return m + (m-c)/2 }, m, corner, 0)
	}
	return 0xff000000
}

// meanPixel is the mean of each byte, rounded down.
func meanPixel(a, b uint32) uint32 { return a&b + (a^b)&0xfefefefe>>1 }

// nearer is the left pixel or the one above, whichever is nearer to both less the corner.
func nearer(left, up, corner uint32) uint32 {
	sum := func(a, b uint32) (n int32) {
		for s := 0; s < 32; s += 8 {
			d := int32(byte(a>>s)) - int32(byte(b>>s))
			n += max(d, -d)
		}
		return n
	}
	if sum(corner, up) < sum(corner, left) {
		return left
	}
	return up
}

func eachByte(f func(a, b, c int32) int32, a, b, c uint32) (v uint32) {
	for s := 0; s < 32; s += 8 {
		v |= uint32(clip(f(int32(byte(a>>s)), int32(byte(b>>s)), int32(byte(c>>s))))) << s
	}
	return v
}
