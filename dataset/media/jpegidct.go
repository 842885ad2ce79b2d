package media

// pair transforms blocks two at a time, which is what fits a register.
type pair struct {
	blocks [2]block
	to     [2]target
	n      int // blocks that wait
}

// target is where a block's pixels go.
type target struct {
	p   *plane
	out []byte
}

// next returns the block to decode into; it is zero.
func (q *pair) next() *block { return &q.blocks[q.n] }

// put takes the block that next returned. Where its only coefficient is the first, whole, it is of one colour.
func (q *pair) put(p *plane, x, y int, whole bool) {
	out := p.row(y * 8)[x*8:]
	if whole {
		flat(out, p.stride, q.blocks[q.n][0]*p.weights[0])
		q.blocks[q.n][0] = 0
		return
	}
	q.to[q.n] = target{p, out}
	if q.n++; q.n == 2 {
		q.flush()
	}
}

// flush transforms the blocks that wait.
func (q *pair) flush() {
	switch {
	case native && q.n == 2:
		a, b := &q.to[0], &q.to[1]
		inversePair(&q.blocks[0][0], &q.blocks[1][0], &a.p.weights[0], &b.p.weights[0], &a.out[0],
			a.p.stride, &b.out[0], b.p.stride)
	default:
		for i := range q.n {
			t := &q.to[i]
			inverse((*[64]int16)(q.blocks[i][:64]), &t.p.weights, t.out, t.p.stride)
		}
	}
	for i := range q.n {
		clear(q.blocks[i][:64])
	}
	q.n = 0
}

// flat fills a block's pixels with what its first coefficient says.
func flat(out []byte, stride int, dc int16) {
	v := clip((int32(dc)+4)>>3 + 128)
	for y := range 8 {
		row := out[y*stride:][:8]
		for x := range row {
			row[x] = v
		}
	}
}

// inverse is the accurate integer transform of Loeffler, Ligtenberg and Moschytz (ICASSP 1989) in 13-bit
// fixed point, with two more bits between columns and rows. Where coefficients are out of all bounds,
// numbers of 16 bits overflow and saturate as in libjpeg-turbo's vectors.
func inverse(c, q *[64]int16, out []byte, stride int) {
	var w [64]int16
	for x := range 8 {
		var in [8]int16
		for y := range 8 {
			in[y] = c[y*8+x] * q[y*8+x]
		}
		for y, v := range inverse8(in) {
			w[y*8+x] = saturate((v + 1<<10) >> 11)
		}
	}
	for y := range 8 {
		row := out[y*stride:][:8]
		for x, v := range inverse8([8]int16(w[y*8:])) {
			row[x] = clip(int32(saturate((v+1<<17)>>18)) + 128)
		}
	}
}

func saturate(v int32) int16 { return int16(min(max(v, -1<<15), 1<<15-1)) }

// inverse8 is the inverse cosine transform of 8 values in whole numbers scaled by 2¹³, as in
// libjpeg's slow integer method, whose results it repeats bit by bit.
func inverse8(in [8]int16) [8]int32 {
	times := func(a int16, k int32, b int16, l int32) int32 { return int32(a)*k + int32(b)*l }
	t0, t1 := int32(in[0]+in[4])<<13, int32(in[0]-in[4])<<13
	t2, t3 := times(in[2], 4433, in[6], -10704), times(in[2], 10703, in[6], 4433)
	e0, e3, e1, e2 := t0+t3, t0-t3, t1+t2, t1-t2
	z3, z4 := in[7]+in[3], in[5]+in[1]
	u3, u4 := times(z3, -6436, z4, 9633), times(z3, 9633, z4, 6437)
	o0, o3 := times(in[7], -4927, in[1], -7373)+u3, times(in[7], -7373, in[1], 4926)+u4
	o1, o2 := times(in[5], -4176, in[3], -20995)+u4, times(in[5], -20995, in[3], 4177)+u3
	return [8]int32{e0 + o3, e1 + o2, e2 + o1, e3 + o0, e3 - o0, e2 - o1, e1 - o2, e0 - o3}
}

// inverseAll transforms the blocks of a progressive image.
func (p *plane) inverseAll() {
	var q pair
	for i := range p.bw * p.bh {
		copy(q.next()[:64], p.coef[i*64:])
		q.put(p, i%p.bw, i/p.bw, false)
	}
	q.flush()
}
