package cpu

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.AttentionBias] = func(b *Backend, c *kernels.Call) {
		a := b.attn(c.In[0], c.In[1], c.In[2], c, len(c.In))
		a.bias = b.attnBias(c.In[5])
		b.attend(&a, c)
	}
	table[kernels.AttentionBiasBwd] = func(b *Backend, c *kernels.Call) {
		a := b.attn(c.In[1], c.In[2], c.In[3], c, len(c.In))
		a.bias = b.attnBias(c.In[8])
		a.bias.shareOut(b, &a, c.In[7].I32())
		b.attendBwd(a, c)
		a.bias.gather(b, c.Out[3])
	}
}

// attnBias is a bias of scores by the distance of key and query, of each head those from -most to most.
type attnBias struct {
	v                 []float32 // [heads, wide]
	heads, wide, most int
	// of the backward: sums of gradients by sequence and block of keys, whose tasks may be several, [..,
	// heads, wide]; first is where those of each sequence begin
	part  []float32
	first []int
}

// attnBias reads the table of biases, [distances, heads], and turns it so that each head's biases lie together.
func (b *Backend) attnBias(t *tensor.Tensor) *attnBias {
	r, h := t.Shape[0], t.Shape[1]
	rows := b.shared.f32(r * h)
	b.k.read(rows, viewOf(t), 0)
	a := &attnBias{v: b.shared.f32(r * h), heads: h, wide: r, most: r / 2}
	for i, v := range rows {
		a.v[i%h*r+i/h] = v
	}
	return a
}

// pieces cuts n distances from the first on into those below -most, those within and those above most, and
// gives the place of the first that is within.
func (a *attnBias) pieces(first, n int) (below, within, at int) {
	below = min(n, max(0, -a.most-first))
	within = min(n, max(below, a.most+1-first))
	return below, within, min(max(0, first+below+a.most), a.wide)
}

// addBias sets x = scale·x + bias, of scores of one query and head with keys from the given distance on.
func (w *worker) addBias(a *attn, x []float32, head, first int) {
	if a.scale != 1 {
		w.k.scale(x, x, a.scale)
	}
	row := a.bias.v[head*a.bias.wide:][:a.bias.wide]
	below, within, at := a.bias.pieces(first, len(x))
	w.k.shift(x[:below], x[:below], row[0])
	w.k.add(x[below:within], x[below:within], row[at:at+within-below])
	w.k.shift(x[within:], x[within:], row[len(row)-1])
}

// shareOut makes room for the sums of each sequence's blocks of keys.
func (a *attnBias) shareOut(b *Backend, at *attn, cuK []int32) {
	n := 0
	for s := range len(cuK) - 1 {
		a.first = append(a.first, n)
		n += ceilDiv(int(cuK[s+1]-cuK[s]), at.step)
	}
	a.part = b.shared.zero(n * len(a.v))
}

// biasedGrad is row i of gradRows with a bias, from column l to h of the block and the given distance on.
func (w *worker) biasedGrad(g *gradState, i, p, l, h, head, first int, lse, delta float32) {
	x, y, a := g.p[p+l:p+h], g.dp[p+l:p+h], g.bias
	w.addBias(&g.attn, x, head, first)
	w.k.softGrad(x, y, x, y, log2e, lse*log2e, delta, 1)
	sums := a.part[((a.first[g.t.seq]+g.k0/g.step)*a.heads+head)*a.wide:][:a.wide]
	below, within, at := a.pieces(first, len(y))
	sums[0] += w.k.sum(y[:below])
	w.k.add(sums[at:at+within-below], sums[at:at+within-below], y[below:within])
	sums[len(sums)-1] += w.k.sum(y[within:])
	w.k.scale(y, y, g.scale)
	if g.amx {
		w.k.toBF16(g.ph[p+l:p+h], x)
		w.k.toBF16(g.dsh[p+l:p+h], y)
	}
}

// gather adds the parts up, in the order of sequences and blocks of keys.
func (a *attnBias) gather(b *Backend, t *tensor.Tensor) {
	rows := b.shared.zero(len(a.v))
	for at := 0; at < len(a.part); at += len(a.v) {
		for i, v := range a.part[at : at+len(a.v)] {
			rows[i%a.wide*a.heads+i/a.wide] += v
		}
	}
	b.k.write(viewOf(t), 0, rows)
}
