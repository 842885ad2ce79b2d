//go:build cuda

package cuda

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Updates by AdamW, and sums of squares, that follow one another wait to be launched together: what is
// anything else, on this device's stream or behind a mark of it, launches them first.

// As many.cu has them.
const (
	manyShare   = 4096 // elements of a block
	manyUpdates = 40   // tensors of a launch
	manySums    = 80
)

// waiting are calls that were taken and not launched.
type waiting struct {
	updates []manyUpdate
	all     manyAll // of the updates
	sums    []manySum
	part    uint64 // device memory for a float64 of each block of sums
	parts   int    // of how many blocks
	raising bool   // calls are being launched
}

// manyUpdate is one tensor's share of a launch.
type manyUpdate struct {
	g, p, m, v, q    uint64
	n, code, noDecay int
	rate, decay      float64
}

// manyAll is what all updates of a launch have in common.
type manyAll struct{ beta1, beta2, eps, correction1, correction2, factor float64 }

type manySum struct {
	x, y uint64
	n    int
	add  bool
}

// later takes an update whose hyper-parameters are on the host, and reports whether it has.
func (x *issue) later() bool {
	hyper, clip, p := x.in(1), x.in(2), x.out(0)
	if x.d.calls != nil || !hyper.OnHost() || !clip.OnHost() || p.OnHost() || p.Len() == 0 {
		return false
	}
	h, c := hyper.F64(), clip.F64()
	if c[kernels.ClipOverflow] == 1 {
		return true // nothing changes
	}
	u := manyUpdate{g: x.q.Addr(x.in(0)), p: x.q.Addr(p), m: x.q.Addr(x.out(1)), v: x.q.Addr(x.out(2)),
		n: p.Len(), rate: h[kernels.HyperLR], decay: h[kernels.HyperDecay], noDecay: x.c.Attr.I[0]}
	if q := x.out(3); q != nil {
		u.q, u.code = x.q.Addr(q), int(q.DType)
	}
	all := manyAll{h[kernels.HyperBeta1], h[kernels.HyperBeta2], h[kernels.HyperEps],
		h[kernels.HyperCorrection1], h[kernels.HyperCorrection2], c[kernels.ClipFactor]}
	w := &x.d.waiting
	if len(w.sums) > 0 || len(w.updates) == manyUpdates || len(w.updates) > 0 && w.all != all {
		x.err = x.d.raise()
	}
	w.all, w.updates = all, append(w.updates, u)
	return true
}

// laterSum takes a sum of squares.
func (x *issue) laterSum() bool {
	g, y := x.in(0), x.out(0)
	if x.d.calls != nil || g.OnHost() || g.Len() == 0 {
		return false
	}
	w := &x.d.waiting
	s := manySum{x: x.q.Addr(g), y: x.q.Addr(y), n: g.Len(), add: x.accumulates(0)}
	if len(w.updates) > 0 || len(w.sums) == manySums {
		x.err = x.d.raise()
	}
	w.sums = append(w.sums, s)
	return true
}

// raise launches what waits.
func (d *device) raise() error {
	w := &d.waiting
	if w.raising || len(w.updates)+len(w.sums) == 0 {
		return nil
	}
	w.raising = true
	defer func() {
		w.raising, w.updates, w.sums = false, w.updates[:0], w.sums[:0]
	}()
	if len(w.updates) > 0 {
		return d.raiseUpdates(w)
	}
	return d.raiseSums(w)
}

func (d *device) raiseUpdates(w *waiting) error {
	words, blocks := d.words[:0], 0
	for _, u := range w.updates {
		words = append(words, u.g, u.p, u.m, u.v, u.q, uint64(u.n), uint64(u.code), uint64(u.noDecay),
			uint64(blocks), math.Float64bits(u.rate), math.Float64bits(u.decay))
		blocks += parts(u.n, manyShare)
	}
	words = append(words, make([]uint64, 11*(manyUpdates-len(w.updates)))...)
	for _, f := range []float64{w.all.beta1, w.all.beta2, w.all.eps, w.all.correction1, w.all.correction2,
		w.all.factor} {
		words = append(words, math.Float64bits(f))
	}
	d.words = append(words, uint64(len(w.updates)))
	return d.launch("adamw_many", grid{x: blocks, threads: 256}, d.words)
}

func (d *device) raiseSums(w *waiting) error {
	words, blocks := d.words[:0], 0
	for _, s := range w.sums {
		add := uint64(0)
		if s.add {
			add = 1
		}
		words = append(words, s.x, s.y, uint64(s.n), uint64(blocks), add)
		blocks += parts(s.n, manyShare)
	}
	if blocks > w.parts {
		if w.part != 0 {
			d.Free(w.part) // waits for what reads it
		}
		var err error
		if w.part, err = d.Alloc(8 * blocks); err != nil {
			w.part, w.parts = 0, 0
			return err
		}
		w.parts = blocks
	}
	words = append(words, make([]uint64, 5*(manySums-len(w.sums)))...)
	d.words = append(words, w.part, uint64(len(w.sums)))
	if err := d.launch("squares_many", grid{x: blocks, threads: 256}, d.words); err != nil {
		return err
	}
	return d.launch("totals_many", grid{x: len(w.sums), threads: 256}, d.words)
}

// sorted are the indices of rows of y, in order of rows and then of places.
func (x *issue) sorted(idx *tensor.Tensor, rows, first int) uint64 {
	return x.sortedAt(x.q.Addr(idx), idx.Len(), rows, first)
}

// sortedRows is sorted for some rows of indices, whose places count from the first of them.
func (x *issue) sortedRows(idx *tensor.Tensor, from, n, rows int) uint64 {
	return x.sortedAt(x.q.Addr(idx)+uint64(4*from*idx.Shape[1]), n*idx.Shape[1], rows, 0)
}

func (x *issue) sortedAt(idx uint64, n, rows, first int) uint64 {
	const block = 512 // kSorted
	padded := parts(n, block) * block
	from, to := x.work(padded, 8), x.work(padded, 8)
	x.launch("sort_blocks", grid{x: padded / block, threads: block / 2}, idx, nil, from, n, first, rows, block, padded)
	for run := block; run < padded; run *= 2 {
		x.launch("sort_merge", each(padded), nil, from, to, n, first, rows, run, padded)
		from, to = to, from
	}
	return from
}
