package cpu

import "github.com/lfactor/lfactor/kernels"

func init() { table[kernels.CutSequences] = cutSequences }

// cutSequences brings the borders into the range of rows.
func cutSequences(_ *Backend, c *kernels.Call) {
	cuQ, cuK, q, k := c.In[0].I32(), c.In[1].I32(), c.Out[0].I32(), c.Out[1].I32()
	from, to := int32(c.Attr.I[0]), int32(c.Attr.I[0]+c.Attr.I[1])
	first, last := 0, -1
	for s := range cuQ {
		q[s] = min(max(cuQ[s], from), to) - from
		if s > 0 && q[s] > q[s-1] {
			if last < 0 {
				first = s - 1
			}
			last = s - 1
		}
	}
	for s := range k {
		k[s] = cuK[max(s, first)]
		if s > last {
			k[s] = cuK[last+1]
			if last >= 0 {
				k[s] -= max(0, cuQ[last+1]-to)
			}
		}
	}
}
