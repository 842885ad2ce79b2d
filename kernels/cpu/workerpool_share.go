package cpu

// shareWork runs n tasks on the team, or on the caller alone if they are too small together.
// work is in float32 multiplications.
func (b *Backend) shareWork(n, work int, f func(w *worker, i int)) {
	if work < aloneMax {
		w := b.team.workers[0]
		for i := range n {
			f(w, i)
			w.arena.reset()
		}
		return
	}
	b.team.share(n, f)
}

// elementCost is the price of one element of an elementwise operation in multiplications, roughly.
const elementCost = 16

// rows cuts n rows of the given width into ranges and shares them.
func (b *Backend) rows(n, width int, f func(w *worker, from, to int)) {
	if n == 0 {
		return
	}
	size := max(1, min(16384/max(width, 1), ceilDiv(n, 2*len(b.team.workers))))
	b.shareWork(ceilDiv(n, size), n*width*elementCost, func(w *worker, i int) {
		f(w, i*size, min((i+1)*size, n))
	})
}

// blockLen is the elements that an elementwise operation handles at a time, in first-level cache.
const blockLen = 2048

// elements applies f to blocks of n elements.
func (b *Backend) elements(n int, f func(w *worker, at, n int)) {
	b.rows(ceilDiv(n, blockLen), blockLen, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			f(w, i*blockLen, min(blockLen, n-i*blockLen))
			w.arena.release(m)
		}
	})
}
