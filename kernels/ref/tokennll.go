package ref

import "github.com/lfactor/lfactor/kernels"

// logitsNLL is linear_lse, lse_join and token_nll of logits.
func logitsNLL(c *kernels.Call) {
	v, target, y := lastDim(c.In[0]), c.In[1].I32(), c.Out[0].F32()
	zs := load(c.In[0])
	for i := range y {
		if y[i] = 0; target[i] >= 0 {
			z, _ := cappedLogits(zs[i*v:(i+1)*v], c.Attr.F[0])
			var shards []float64
			for s, n := 0, max(1, c.Attr.I[1]); s < n; s++ {
				from, to := kernels.Shard(v, s, n)
				shards = append(shards, float64(float32(logSumExp(z[from:to]))))
			}
			y[i] = float32(logSumExp(shards)) - float32(z[target[i]])
		}
	}
}
