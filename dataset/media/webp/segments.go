package webp

// segments are up to four classes of macroblocks with steps and filters of their own (section 9.3).
type segments struct {
	used, mapped, relative bool
	step, filter           [4]int32
	probs                  [3]byte
}

// readSegments reads the quality and filter of up to four segments of the picture, absolute or
// relative to the picture's own.
func (d *lossy) readSegments() {
	r, s := &d.first, segments{probs: [3]byte{255, 255, 255}}
	d.segment = 0
	if s.used = r.flag(); s.used {
		s.mapped = r.flag()
		if r.flag() {
			s.relative = !r.flag()
			for i := range s.step {
				s.step[i] = r.maybe(7)
			}
			for i := range s.filter {
				s.filter[i] = r.maybe(6)
			}
		}
		for i := range s.probs {
			if s.mapped && r.flag() {
				s.probs[i] = byte(r.number(8))
			}
		}
	}
	d.segments = s
}

// steps are what a segment's coefficients are multiplied by: the constant term's, and the others'.
type steps struct{ luma, constants, chroma [2]int32 }

// readSteps reads the steps' indices (section 9.6).
func (d *lossy) readSteps() {
	r := &d.first
	base := r.number(7)
	var more [5]int32 // luma's constant terms, constant and other terms of these, of chroma
	for i := range more {
		more[i] = r.maybe(4)
	}
	for i := range d.steps {
		q := base
		if d.segments.used {
			if q = d.segments.step[i]; d.segments.relative {
				q += base
			}
		}
		index := func(more int32, most int32) int32 { return min(max(q+more, 0), most) }
		d.steps[i] = steps{
			luma:      [2]int32{stepsDC[index(more[0], 127)], stepsAC[index(0, 127)]},
			constants: [2]int32{2 * stepsDC[index(more[1], 127)], max(stepsAC[index(more[2], 127)]*155/100, 8)},
			chroma:    [2]int32{stepsDC[index(more[3], 117)], stepsAC[index(more[4], 127)]}, // at most 132
		}
	}
}

// filterHeader is what the frame says of the loop filter (section 9.6 and 15).
type filterHeader struct {
	simple      bool
	level       int32
	sharpness   int32
	deltas      bool
	ref, byMode [4]int32
}

// strength is how a macroblock is filtered.
type strength struct {
	limit byte // of differences across an edge in the macroblock; 0: it is not filtered
	inner byte // of differences beside an edge
	high  byte // difference beside an edge above which only the nearest pixels change
	all   bool // edges in the macroblock too
}

// readFilter reads the loop filter and works out its strength for each segment.
func (d *lossy) readFilter() {
	r := &d.first
	f := filterHeader{simple: r.flag(), level: r.number(6), sharpness: r.number(3), deltas: r.flag()}
	if f.deltas && r.flag() {
		for i := range f.ref {
			f.ref[i] = r.maybe(6)
		}
		for i := range f.byMode {
			f.byMode[i] = r.maybe(6)
		}
	}
	d.filter = f
	for i := range d.strength {
		base := f.level
		if d.segments.used {
			if base = d.segments.filter[i]; d.segments.relative {
				base += f.level
			}
		}
		for blocks := range d.strength[i] {
			level := base
			if f.deltas {
				level += f.ref[0] + int32(blocks)*f.byMode[0]
			}
			d.strength[i][blocks] = newStrength(min(max(level, 0), 63), f.sharpness, blocks == 1)
		}
	}
}

// newStrength turns a level into limits (section 15.4).
func newStrength(level, sharpness int32, blocks bool) strength {
	if level == 0 {
		return strength{all: blocks}
	}
	inner := level
	if sharpness > 0 {
		if inner >>= 1; sharpness > 4 {
			inner >>= 1
		}
		inner = min(inner, 9-sharpness)
	}
	inner = max(inner, 1)
	high := byte(0)
	if level >= 15 {
		high++
	}
	if level >= 40 {
		high++
	}
	return strength{byte(2*level + inner), byte(inner), high, blocks}
}
