package ref

import "github.com/lfactor/lfactor/kernels"

func init() { table[kernels.EncodeRows], table[kernels.DecodeRows] = encodeRows, decodeRows }

func encodeRows(c *kernels.Call) {
	g, x, y := kernels.Precisions[c.Attr.I[1]].Act, load(c.In[0]), c.Out[0].Bytes()
	k, m := lastDim(c.In[0]), lastDim(c.Out[0])
	row := make([]float32, k)
	for i := range c.In[0].Rows() {
		for j := range row {
			row[j] = float32(x[i*k+j])
		}
		g.Encode(row, y[i*m:(i+1)*m])
	}
}

func decodeRows(c *kernels.Call) {
	g, x := kernels.Precisions[c.Attr.I[1]].Act, c.In[0].Bytes()
	k, m := lastDim(c.Out[0]), lastDim(c.In[0])
	y, row := make([]float64, c.Out[0].Len()), make([]float32, k)
	for i := range c.Out[0].Rows() {
		g.Decode(x[i*m:(i+1)*m], row)
		for j, v := range row {
			y[i*k+j] = float64(v)
		}
	}
	store(c.Out[0], y)
}
