package kernels

import "fmt"

// Parts is in how many parts, one after the other, a product takes its sums: 1 but for those of Attr.I[3].
func Parts(c *Call) int { return max(1, c.Attr.I[3]) }

// PartsOf are the parts [from, to) of those of Parts that a product adds up: all, or the one of Attr.I[2].
func PartsOf(c *Call) (from, to int) {
	if i := c.Attr.I[2]; i > 0 {
		return i - 1, i
	}
	return 0, Parts(c)
}

func init() {
	for _, op := range []Op{Linear, GroupedLinear} {
		before := extra[op]
		extra[op] = func(c *Call) error {
			p, k := Parts(c), c.In[1].Shape[len(c.In[1].Shape)-1]
			switch {
			case k%p != 0 || c.Attr.I[2] < 0 || c.Attr.I[2] > p:
				return fmt.Errorf("part %d of sums of %d numbers in %d parts", c.Attr.I[2], k, p)
			case p > 1 && op == GroupedLinear && (len(c.In) < 3 || c.In[2] == nil):
				return fmt.Errorf("sums of heads in %d parts", p)
			case before != nil:
				return before(c)
			}
			return nil
		}
	}
}

// Shard is the rows [from, to) of a vocabulary of v that shard i of n has: equal numbers, rounded up, of
// which the last have fewer.
func Shard(v, i, n int) (from, to int) {
	each := (v + n - 1) / n
	return min(v, i*each), min(v, (i+1)*each)
}
