package webp

// filterRow smooths the edges of a row of macroblocks (section 15): of each its left edge, those in it, its
// upper edge and those in it, and then the next.
func (d *lossy) filterRow(my int) {
	if d.filter.level == 0 {
		return
	}
	for mx, s := range d.strengths[:d.mbw] {
		if s.limit == 0 {
			continue
		}
		switch {
		case native && !d.filter.simple:
			y, c := 16*my*d.y.stride+16*mx+d.y.origin, 8*my*d.u.stride+8*mx+d.u.origin
			filterMacroblock(&d.y.pix[y], &d.u.pix[c], &d.v.pix[c], d.y.stride, d.u.stride,
				edgesOf(mx > 0, my > 0, s), int(s.limit), int(s.inner), int(s.high))
		case d.filter.simple:
			filterSimple(d.y.from(16*mx, 16*my), d.y.stride, mx > 0, my > 0, s)
		default:
			filterArea(d.y.from(16*mx, 16*my), 16, d.y.stride, mx > 0, my > 0, s)
			filterArea(d.u.from(8*mx, 8*my), 8, d.u.stride, mx > 0, my > 0, s)
			filterArea(d.v.from(8*mx, 8*my), 8, d.v.stride, mx > 0, my > 0, s)
		}
	}
}

// from is the plane from four columns before a pixel on, and from four rows before it if there are any.
func (p *plane) from(x, y int) []byte { return p.pix[max(y-4, 0)*p.stride+x+p.origin-4:] }

// edgesOf are bits for the left edge, the edges in a macroblock, and the upper edge.
func edgesOf(left, above bool, s strength) (bits int) {
	for i, set := range [3]bool{left, s.all, above} {
		if set {
			bits |= 1 << i
		}
	}
	return bits
}

// edges calls f with the place of each edge's first pixel and the limit of differences. p begins four
// columns before the area, and four rows before it if there is something above.
func edges(side, step, stride int, left, above bool, s strength, f func(at, along, across, limit int, outer bool)) {
	first := 4
	if above {
		first += 4 * stride
	}
	if left {
		f(first, stride, 1, int(s.limit)+4, true)
	}
	for i := step; s.all && i < side; i += step {
		f(first+i, stride, 1, int(s.limit), false)
	}
	if above {
		f(first, 1, stride, int(s.limit)+4, true)
	}
	for i := step; s.all && i < side; i += step {
		f(first+i*stride, 1, stride, int(s.limit), false)
	}
}

// filterSimple smooths the edges of a macroblock's luma with the simple filter, which changes one pixel on either side.
func filterSimple(p []byte, stride int, left, above bool, s strength) {
	edges(16, 4, stride, left, above, s, func(at, along, across, limit int, _ bool) {
		for i := range 16 {
			if q := p[at+i*along-2*across:]; isEdge(q, across, limit) {
				filter2(q, across)
			}
		}
	})
}

// filterArea smooths the edges of one plane with the normal filter: edges with high variance change
// little, and the macroblock's own edges more than those within.
func filterArea(p []byte, side, stride int, left, above bool, s strength) {
	edges(side, 4, stride, left, above, s, func(at, along, across, limit int, outer bool) {
		for i := range side {
			q := p[at+i*along-4*across:]
			if !isEdge(q[2*across:], across, limit) || !isSmooth(q, across, int(s.inner)) {
				continue
			}
			near := q[2*across:]
			switch {
			case apart(near, 0, across) > int(s.high) || apart(near, 2*across, across) > int(s.high):
				filter2(near, across)
			case outer:
				filter6(q[across:], across)
			default:
				filter4(near, across)
			}
		}
	})
}

// apart is the difference of two neighbours.
func apart(q []byte, at, across int) int {
	v := int(q[at]) - int(q[at+across])
	return max(v, -v)
}

// isEdge tells whether an edge is small enough to come from quantization; q are two pixels on each side.
func isEdge(q []byte, across, limit int) bool {
	far := int(q[0]) - int(q[3*across])
	return 2*apart(q, across, across)+max(far, -far)/2 <= limit
}

// isSmooth tells whether both sides are; q are four pixels on each.
func isSmooth(q []byte, across, limit int) bool {
	for i := range 7 {
		if i != 3 && apart(q, i*across, across) > limit {
			return false
		}
	}
	return true
}

func clip8(v int) int { return min(max(v, -128), 127) }
func clip5(v int) int { return min(max(v, -16), 15) }

// filter2 changes the pixels at an edge; q are two on each side.
func filter2(q []byte, across int) {
	p1, p0, q0, q1 := int(q[0]), int(q[across]), int(q[2*across]), int(q[3*across])
	a := 3*(q0-p0) + clip8(p1-q1)
	q[across] = clip(int32(p0 + clip5((a+3)>>3)))
	q[2*across] = clip(int32(q0 - clip5((a+4)>>3)))
}

// filter4 changes two pixels on each side; q are those.
func filter4(q []byte, across int) {
	p1, p0, q0, q1 := int(q[0]), int(q[across]), int(q[2*across]), int(q[3*across])
	a := 3 * (q0 - p0)
	a1, a2 := clip5((a+4)>>3), clip5((a+3)>>3)
	a3 := (a1 + 1) >> 1
	q[0], q[across] = clip(int32(p1+a3)), clip(int32(p0+a2))
	q[2*across], q[3*across] = clip(int32(q0-a1)), clip(int32(q1-a3))
}

// filter6 changes three pixels on each side; q are those.
func filter6(q []byte, across int) {
	a := clip8(3*(int(q[3*across])-int(q[2*across])) + clip8(int(q[across])-int(q[4*across])))
	for i, by := range [3]int{27, 18, 9} {
		v := (by*a + 63) >> 7
		before, behind := (2-i)*across, (3+i)*across
		q[before], q[behind] = clip(int32(q[before])+int32(v)), clip(int32(q[behind])-int32(v))
	}
}
