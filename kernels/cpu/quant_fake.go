package cpu

import "github.com/lfactor/lfactor/kernels"

func init() { table[kernels.FakeQuant], table[kernels.FakeQuantDW] = fakeQuant, fakeQuantDW }

func fakeQuant(b *Backend, c *kernels.Call) {
	f, from, to, k := kernels.FakeAt(c.Attr), viewOf(c.In[0]), viewOf(c.Out[0]), lastDim(c.In[0])
	rows := c.In[0].Rows()
	b.shareWork(rows, rows*k*elementCost, func(w *worker, i int) {
		defer w.arena.release(w.arena.mark())
		row := w.arena.f32(k)
		w.k.read(row, from, i*k)
		f.Row(row, row)
		w.k.write(to, i*k, row)
	})
}

func fakeQuantDW(b *Backend, c *kernels.Call) {
	f, from, k := kernels.FakeAt(c.Attr), viewOf(c.In[1]), lastDim(c.In[0])
	dy, dw, rows := c.In[0].F32(), c.Out[0].F32(), c.In[0].Rows()
	b.shareWork(rows, rows*k*elementCost, func(w *worker, i int) {
		defer w.arena.release(w.arena.mark())
		row := w.arena.f32(k)
		w.k.read(row, from, i*k)
		f.Gradient(dw[i*k:(i+1)*k], dy[i*k:(i+1)*k], row)
	})
}
