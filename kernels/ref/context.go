package ref

import "github.com/lfactor/lfactor/kernels"

func init() { table[kernels.CutSequences] = cutSequences }

// cutSequences counts the queries of each sequence row by row.
func cutSequences(c *kernels.Call) {
	cuQ, cuK, q, k := c.In[0].I32(), c.In[1].I32(), c.Out[0].I32(), c.Out[1].I32()
	from, to := int32(c.Attr.I[0]), int32(c.Attr.I[0]+c.Attr.I[1])
	first, last, behind := -1, -1, int32(0)
	q[0] = max(0, min(cuQ[0], to)-from)
	for s := range len(cuQ) - 1 {
		q[s+1] = q[s]
		later := int32(0)
		for row := cuQ[s]; row < cuQ[s+1]; row++ {
			if row >= to {
				later++
			} else if row >= from {
				q[s+1]++
			}
		}
		if q[s+1] > q[s] {
			if first < 0 {
				first = s
			}
			last, behind = s, later
		}
	}
	for s := range k {
		switch {
		case first < 0:
			k[s] = cuK[0]
		case s > last:
			k[s] = cuK[last+1] - behind
		default:
			k[s] = cuK[max(s, first)]
		}
	}
}
