package cpu

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Convolutions that are multiplied where their inputs lie. A task copies the inputs of some rows of results to its
// second-level cache, with zeros around them, and multiplies them there by packed weights: nothing is gathered.
// Rows of a tile are three groups of neighbouring places, and the sum of a result runs over the taps and their channels
// in order, in one register. So bits depend neither on threads nor on how results are cut into tasks.
//
// Where the processor multiplies pairs of bfloat16 twice as fast as float32s, two channels are multiplied at
// a time; elsewhere bfloat16 is widened when it is copied.

const (
	directWork = 1 << 16 // words of a task's inputs, a part of the second-level cache
	// directPlaces is the results of a task at least
	directPlaces = 96
	halfPanel    = 16 // columns of a packed panel
	// fewPlaces is the distance of places in bytes, or a multiple of it, at which the lines of a tile would
	// fall into too few sets of the first-level cache.
	fewPlaces = 2048
)

// convArgs are the arguments of isa.convTile, which uses up n. Strides and offsets are in bytes. The assembly
// knows the order.
type convArgs struct {
	a         uintptr // the block of inputs
	table     uintptr // for each tile the offsets of three groups of places in a, and in c
	taps, end uintptr // offsets of the pieces of a sum from a place, and in b, and the end of them
	k         int     // words of a piece
	step      int     // from a place of a group to the next
	b         uintptr // packed weights: panels of 16 columns, a word each
	half      int     // to the second panel, if a tile has two
	bias, c   uintptr // what sums begin with, a vector of float32s for all columns; the result
	row       int     // from a place of a group to the next in c
	round     int     // 1 for results in bfloat16; of pairs alone
	n         int     // tiles
}

// direct is a convolution of a gathered matrix by packed weights.
type direct struct {
	*gathered
	pairs   bool
	cols    int
	size    int // bytes of an element of a block
	place   int // elements from one place of a block to the next
	made    int // results of a row that there are
	run     int // taps that lie one behind the other
	piece   int // elements of them in a sum, a multiple of a word's
	lo, hi  grid
	wide    int // places of a line of a block
	conv    func(*convArgs)
	packed  []float32
	next    int // from one panel to the next
	mr, nr  int
	bias    []float32
	r       result
	to      grid // the result's places, of which those at origin + stride·m are computed
	origin  grid
	strides grid
}

// directs tells whether rows of g, of a convolution without groups, can be multiplied where they lie.
func (b *Backend) directs(s *convShape, g *gathered, d tensor.DType) bool {
	wide := g.rows[2] >= b.k.mr/3 || min(s.ch, s.outs) >= fewChannels
	return b.k.convTile != nil && s.groups == 1 && wide && s.ch > 0 && s.outs > 0 && g.count() > 0 &&
		(b.k.convPairs != nil || b.widens(d))
}

// phasesDirect tells whether all phases of a gradient to the input can be. One that is the tensor as it lies
// is a plain product.
func (b *Backend) phasesDirect(s *convShape, l []phase, d tensor.DType) bool {
	for _, p := range l {
		if !b.directs(s, p.gathered, d) || p.rows == s.in && p.isWhole() {
			return false
		}
	}
	return len(l) > 0
}

// phasesDirectly computes the inputs of all phases.
func (b *Backend) phasesDirectly(s *convShape, l []phase, w *tensor.Tensor, r result) {
	var ds []*direct
	var taps [][]int
	for _, p := range l {
		slices.Reverse(p.offs) // taps that come later meet outputs that come before
		slices.Reverse(p.taps)
		d := b.directOf(p.gathered, s.ch)
		d.to, d.origin = s.in, p.first
		for a, t := range s.win {
			d.strides[a] = t.Stride
		}
		d.makeRoom(b)
		ds, taps = append(ds, d), append(taps, p.taps)
	}
	b.packColumns(ds, viewOf(w), s.taps(), taps)
	for _, d := range ds {
		b.multiplyDirectly(d, r)
	}
}

// directOf plans a convolution to n columns.
func (b *Backend) directOf(g *gathered, n int) *direct {
	d := &direct{gathered: g, cols: n, size: 4, mr: b.k.mr, nr: b.k.nr, conv: b.k.convTile, to: g.rows,
		strides: grid{1, 1, 1}}
	word := 1
	if d.place = g.each; g.v.d == tensor.BF16 && b.k.convPairs != nil {
		d.pairs, d.size, d.conv, word = true, 2, b.k.convPairs, 2
		if g.each >= fewChannels {
			d.place = roundUp(g.each, 2)
		}
	}
	if d.made = g.rows[2]; d.made < d.mr/3 { // those beyond the row are computed and not stored
		group := *g
		group.rows[2] = d.mr / 3
		d.gathered = &group
	}
	d.run = g.runs()
	if d.place*d.size*g.step[2]%fewPlaces == 0 {
		d.place += 64 / d.size
		d.run = 1
	}
	d.piece = roundUp((d.run-1)*d.place+g.each, word)
	d.bounds()
	d.wide = (d.rows[2]-1)*d.step[2] + d.hi[2] - d.lo[2] + 1
	return d
}

// runs is the number of taps, from the first on, that are one place apart along the last axis, 1 if the
// others do not lie in such runs.
func (g *gathered) runs() int {
	follows := func(k int) bool {
		o := g.offs[k-1]
		o[2]++
		return o == g.offs[k]
	}
	run := 1
	for run < len(g.offs) && follows(run) {
		run++
	}
	for k := 1; k < len(g.offs); k++ {
		if follows(k) != (k%run != 0) {
			return 1
		}
	}
	if len(g.offs)%run != 0 {
		return 1
	}
	return run
}

// bounds sets the least and the greatest offset of taps on each axis.
func (d *direct) bounds() {
	for i, o := range d.offs {
		for a := range o {
			if i == 0 || o[a] < d.lo[a] {
				d.lo[a] = o[a]
			}
			if i == 0 || o[a] > d.hi[a] {
				d.hi[a] = o[a]
			}
		}
	}
}

// word is the elements that are multiplied at a time.
func (d *direct) word() int { return 4 / d.size }

// pieces is the number of runs of taps, sum the elements of a row of weights.
func (d *direct) pieces() int { return ceilDiv(len(d.offs), d.run) }
func (d *direct) sum() int    { return d.pieces() * d.piece }

// position is where the weights of tap k begin in a row of them.
func (d *direct) position(k int) int { return k/d.run*d.piece + k%d.run*d.place }

// panels is the number of packed panels, a multiple of those of a tile.
func (d *direct) panels() int { return roundUp(ceilDiv(d.cols, halfPanel), d.nr/halfPanel) }

// makeRoom reserves the packed weights.
func (d *direct) makeRoom(b *Backend) {
	d.next = d.panelWords()
	d.packed = b.shared.f32(d.panels() * d.next)
}

// panelWords is from one packed panel to the next.
func (d *direct) panelWords() int { return roundUp(d.sum(), 32)/d.word()*halfPanel + line }

// multiplyDirectly computes the result r, with packed weights.
func (b *Backend) multiplyDirectly(d *direct, r result) {
	d.r = r
	d.bias = b.shared.zero(roundUp(d.cols, d.nr))
	copy(d.bias, r.bias)
	rows := d.taskRows()
	blocks := ceilDiv(d.rows[1], max(1, rows))
	frames, at := d.n*d.rows[0], d.taskFrames(rows)
	units := ceilDiv(frames, at)
	tiles := d.panels() * halfPanel / d.nr
	parts := 1
	if t := len(b.team.workers); t > 1 && units > 0 {
		if parts = min(tiles, ceilDiv(3*t, units*blocks)); d.across > 0 && parts > t {
			parts = min(tiles, roundUp(parts, 2*t)) // as many for each worker
		}
	}
	each := ceilDiv(tiles, parts)
	parts = ceilDiv(tiles, each)
	b.shareWork(units*blocks*parts, d.count()*d.cols*d.sum(), func(w *worker, i int) {
		part, frame, first := i%parts, i/parts/blocks*at, i/parts%blocks*rows
		t := directTask{direct: d, frame: frame, frames: min(at, frames-frame), first: first,
			rows: min(rows, d.rows[1]-first)}
		t.lines = d.linesOf(t.rows)
		t.span()
		t.run(w, part*each, min((part+1)*each, tiles))
	})
	runtime.KeepAlive(d)
}

// taskRows is the rows of results of a task: as many as have their inputs in the second-level cache, but so
// many that the weights, which each task reads, are not much of what it reads, and whole tiles if it can.
func (d *direct) taskRows() int {
	line := (d.hi[0] - d.lo[0] + 1) * d.wide * d.place / d.word()
	rows := (directWork/max(1, line) - d.hi[1] + d.lo[1]) / d.step[1]
	rows = max(rows, ceilDiv(directPlaces, d.rows[2]))
	if rows >= d.rows[1] {
		return d.rows[1]
	}
	rows = ceilDiv(d.rows[1], ceilDiv(d.rows[1], rows))
	if ceilDiv(d.rows[2], d.mr/3)%3 != 0 {
		return roundUp(rows, 3)
	}
	return rows
}

// linesOf is the lines of a frame of inputs that so many rows of results take.
func (d *direct) linesOf(rows int) int { return (rows-1)*d.step[1] + d.hi[1] - d.lo[1] + 1 }

// taskFrames is the frames of a task: several of those that fit where one is a task and taps stay in it. With
// samples as the last axis they are all, or one.
func (d *direct) taskFrames(rows int) int {
	line := d.wide * d.place / d.word()
	if d.across > 0 && rows == d.rows[1] && d.from[0]*d.linesOf(rows)*line <= acrossWork {
		return d.rows[0]
	}
	if rows < d.rows[1] || d.lo[0] != 0 || d.hi[0] != 0 || d.from[0] != d.rows[0] {
		return 1
	}
	return max(1, min(d.n*d.rows[0], directWork/max(1, d.linesOf(rows)*line)))
}

// directTask is some rows of some frames of a result.
type directTask struct {
	*direct
	frame, frames int
	first, rows   int
	lines         int // of a frame's inputs
	z, zs         int // frames of inputs, from z on
}

// span sets the frames of inputs: those that one frame of results meets, there or not; as many as there are
// of results, whose taps stay in theirs; or those that are there of several.
func (t *directTask) span() {
	d := t.direct
	t.z, t.zs = t.frame%d.rows[0]*d.step[0]+d.lo[0], max(t.frames, d.hi[0]-d.lo[0]+1)
	if t.each() < t.frames {
		end := t.z + (t.frames-1)*d.step[0] + d.hi[0] - d.lo[0] + 1
		t.z = max(0, t.z)
		t.zs = max(0, min(d.from[0], end)-t.z)
	}
}

// each is the frames of a task that have their taps in common.
func (t *directTask) each() int {
	if t.across > 0 {
		return 1
	}
	return t.frames
}

// ints is room for n machine words.
func (s *scratch) ints(n int) []int {
	v := s.f32(2 * n)
	return unsafe.Slice((*int)(unsafe.Pointer(unsafe.SliceData(v))), n)
}

// directPart is the frames of a task with their taps in common: where the pieces of sums lie, and the tiles,
// whose results go to their places.
type directPart struct {
	directTask
	again       int // results of a row, from its first on, that another task stores
	taps, tiles []int
}

// run computes the columns of the tiles [from, to).
func (t *directTask) run(w *worker, from, to int) {
	block, parts, each := t.block(w), []directPart(nil), t.each()
	for i := 0; i < t.frames; i += each {
		part := directPart{directTask: *t}
		part.frame, part.frames = t.frame+i, each
		if t.across > 0 {
			part.again = part.doneAgain()
		}
		part.taps, part.tiles = part.pieceTable(w), part.places(w, t.r.ld*t.r.v.bytes(), false)
		parts = append(parts, part)
	}
	for p := from; p < to; p++ {
		for i := range parts {
			mark := w.arena.mark()
			parts[i].columns(w, block, p)
			w.arena.release(mark)
		}
	}
	runtime.KeepAlive(block)
}

// columns computes those of tile p.
func (t *directPart) columns(w *worker, block uintptr, p int) {
	d := t.direct
	bytes, words := d.r.v.bytes(), d.sum()/d.word()
	args := convArgs{a: block, taps: address(t.taps), k: d.piece / d.word(), step: d.step[2] * d.place * d.size,
		half: 4 * d.next, b: address(d.packed[p*d.nr/halfPanel*d.next:]), bias: address(d.bias[p*d.nr:])}
	args.end = args.taps + uintptr(8*len(t.taps)) // pairs of words
	cols := min(d.nr, d.cols-p*d.nr)
	if cols == d.nr && d.made == d.rows[2] && t.again == 0 && (d.r.v.d == tensor.F32 || d.pairs) {
		args.row, args.round = d.strides[2]*d.r.ld*bytes, 4/bytes-1
		if d.across > 0 {
			args.row *= d.to[0] * d.to[1]
		}
		args.c = d.r.v.from(p * d.nr).address()
		w.convCalls(d.conv, args, t.tiles, words)
		return
	}
	n := t.frames * t.rows * d.rows[2]
	part := w.arena.f32(n * d.nr)
	args.row, args.round, args.c = d.nr*4, 0, address(part)
	w.convCalls(d.conv, args, t.places(w, d.nr*4, true), words)
	for i := range n {
		if x := i % d.rows[2]; x >= t.again && x < d.made {
			at := t.target(i/d.rows[2], x)
			w.k.write(d.r.v, at*d.r.ld+p*d.nr, part[i*d.nr:][:cols])
		}
	}
}

// doneAgain is the results of a row, from its first on, that another task stores.
func (t *directTask) doneAgain() int {
	first := t.frame / t.direct.rows[0] * t.direct.rows[2]
	return max(0, first+t.direct.rows[2]-t.across)
}

// pieceTable is the table of the pieces of sums of a frame: where they lie from a place on, and their
// weights. Those of frames that are not there are left out.
func (t *directTask) pieceTable(w *worker) []int {
	d, l, n := t.direct, w.arena.ints(2*t.pieces()), 0
	for i := range d.pieces() {
		o := d.offs[i*d.run]
		z := t.frame%d.rows[0]*d.step[0] + o[0]
		if z < 0 || z >= d.from[0] {
			continue
		}
		l[n] = (((z-t.z)*t.lines+o[1]-d.lo[1])*d.wide + o[2] - d.lo[2]) * d.place * d.size
		l[n+1] = i * d.piece / d.word() * halfPanel * 4
		n += 2
	}
	return l[:n]
}

// convCalls multiplies the tiles of a table, whose sums are of k words, in calls that are short enough.
func (w *worker) convCalls(conv func(*convArgs), args convArgs, table []int, k int) {
	most := max(1, callMax/max(1, w.k.mr*w.k.nr*k))
	for at := 0; at < len(table); at += 6 * most {
		some := args
		some.table, some.n = address(table[at:]), min(most, (len(table)-at)/6)
		conv(&some)
	}
	runtime.KeepAlive(table)
}

// target is the place of the result that place x of row i of the task's is.
func (t *directTask) target(i, x int) int {
	d, frame, y := t.direct, t.frame+i/t.rows, t.first+i%t.rows
	n, f := frame/d.rows[0], frame%d.rows[0]
	at, apart := lineOf(d.to, d.across, n, f*d.strides[0]+d.origin[0], y*d.strides[1]+d.origin[1])
	return at + (x*d.strides[2]+d.origin[2])*apart
}

// places is the table of the task's tiles: three groups of places a tile. The last group of a row begins so
// far before its end that it is whole, and the last tile repeats a group: what is computed twice is the same.
// Results lie ld bytes apart at their places, or in the order of the task's places if apart.
func (t *directTask) places(w *worker, ld int, apart bool) []int {
	d, group := t.direct, t.mr/3
	across := ceilDiv(d.rows[2], group)
	groups := t.frames * t.rows * across
	table := w.arena.ints(roundUp(groups, 3) * 2)
	row, first, next := -1, 0, ld // the first place of a row, and from one of its places to the next
	for i := range roundUp(groups, 3) {
		g := min(i, groups-1)
		x := min(g%across*group, d.rows[2]-group)
		if g/across != row {
			if row = g / across; apart {
				first = row * d.rows[2] * ld
			} else {
				first = t.target(row, 0) * ld
				next = t.target(row, 1)*ld - first
			}
		}
		line := row/t.rows*t.lines + row%t.rows*d.step[1]
		at := i/3*6 + i%3
		table[at] = (line*d.wide + x*d.step[2]) * d.place * d.size
		table[at+3] = first + x*next
	}
	return table
}

// block copies the task's inputs, and gives the address of the copy: frame by frame. What is read past the
// last place is zeros.
func (t *directTask) block(w *worker) uintptr {
	d, line := t.direct, t.wide*t.place
	size := t.zs * t.lines * line
	var block view
	if d.pairs {
		block = view{h: w.arena.u16(size + d.word()), d: tensor.BF16}
	} else {
		block = view{f: w.arena.f32(size)}
	}
	for i := range t.zs {
		n, z := t.frame/d.rows[0], t.z+i
		if t.each() > 1 {
			n, z = (t.frame+i)/d.rows[0], (t.frame+i)%d.rows[0]
		}
		for j := range t.lines {
			y, at := t.first*d.step[1]+d.lo[1]+j, (i*t.lines+j)*line
			if z < 0 || z >= d.from[0] || y < 0 || y >= d.from[1] {
				block.move(at, d.v, -1, line)
				continue
			}
			from, apart := lineOf(d.from, d.across, n, z, y)
			w.directLine(d, block, at, from, apart)
		}
	}
	if d.pairs {
		clear(block.h[size:])
	}
	return block.address()
}

// directLine copies a line of the tensor, whose places lie apart from the first on, with zeros before and behind it.
func (w *worker) directLine(d *direct, block view, at, from, apart int) {
	lo := max(0, -d.lo[2])
	x := d.lo[2] + lo
	n := max(0, min(d.wide-lo, d.from[2]-x))
	lo = min(lo, d.wide)
	block.move(at, d.v, -1, lo*d.place)
	block.move(at+(lo+n)*d.place, d.v, -1, (d.wide-lo-n)*d.place)
	at, from = at+lo*d.place, (from+x*apart)*d.ch+d.first
	if d.place == d.each && d.ch == d.each && apart == 1 {
		w.copyIn(block, at, d.v, from, n*d.place)
		return
	}
	for i := range n {
		w.copyIn(block, at+i*d.place, d.v, from+i*apart*d.ch, d.each)
		block.move(at+i*d.place+d.each, d.v, -1, d.place-d.each)
	}
}

// copyIn copies n elements, widened where the copy is wider.
func (w *worker) copyIn(dst view, j int, src view, i, n int) {
	if dst.d == src.d {
		dst.move(j, src, i, n)
	} else {
		w.k.read(dst.f[j:j+n], src, i)
	}
}
