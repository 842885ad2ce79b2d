package ref

import "github.com/lfactor/lfactor/kernels"

func init() {
	table[kernels.LargestTo], table[kernels.Greatest] = largestTo, greatestOf
	table[kernels.DelayedScales] = delayedScales
}

func largestTo(c *kernels.Call) {
	if len(c.In) > 1 && c.In[1] != nil && c.In[1].F64()[kernels.ClipOverflow] != 0 {
		return
	}
	x, y := c.In[0].F32(), c.Out[0].F32()
	for i, v := range x {
		if c.Attr.I[0]&kernels.Accumulate == 0 || v > y[i] {
			y[i] = v
		}
	}
}

func greatestOf(c *kernels.Call) {
	e := make([]float64, c.Out[0].Len())
	for i, t := range c.In {
		v := load(t)
		narrow := make([]float32, len(v))
		for k, x := range v {
			narrow[k] = float32(x)
		}
		e[i] = float64(kernels.GreatestOf(0, narrow))
	}
	store(c.Out[0], e)
}

func delayedScales(c *kernels.Call) {
	if c.In[1].F64()[kernels.ClipOverflow] == 0 {
		kernels.Remember(c.Out[0].F32(), c.In[0].F32())
	}
}
