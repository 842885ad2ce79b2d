package cpu

import "github.com/lfactor/lfactor/kernels"

func init() { table[kernels.EncodeRows], table[kernels.DecodeRows] = encodeRows, decodeRows }

func encodeRows(b *Backend, c *kernels.Call) {
	g, from, y := kernels.Precisions[c.Attr.I[1]].Act, viewOf(c.In[0]), c.Out[0].Bytes()
	k, m, rows := lastDim(c.In[0]), lastDim(c.Out[0]), c.In[0].Rows()
	b.shareWork(rows, rows*k*elementCost, func(w *worker, i int) {
		defer w.arena.release(w.arena.mark())
		row := w.arena.f32(k)
		w.k.read(row, from, i*k)
		g.Encode(row, y[i*m:(i+1)*m])
	})
}

func decodeRows(b *Backend, c *kernels.Call) {
	g, x, to := kernels.Precisions[c.Attr.I[1]].Act, c.In[0].Bytes(), viewOf(c.Out[0])
	k, m, rows := lastDim(c.Out[0]), lastDim(c.In[0]), c.Out[0].Rows()
	b.shareWork(rows, rows*k*elementCost, func(w *worker, i int) {
		defer w.arena.release(w.arena.mark())
		row := w.arena.f32(k)
		g.Decode(x[i*m:(i+1)*m], row)
		w.k.write(to, i*k, row)
	})
}
