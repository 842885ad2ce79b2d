package kernels

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/routing"
)

// What experts need beside grouped products. Letters: e experts · k experts that a token goes to · r = t·k
// rows of tokens, one for each of a token's experts; row t·k+j of them all is token t's for its j-th expert.
const (
	Route          Op = "route"
	RouteBwd       Op = "route_bwd"
	RouteOrder     Op = "route_order"
	Spread         Op = "spread"
	Mix            Op = "mix"
	MixDW          Op = "mix_dw"
	BalanceSums    Op = "balance_sums"
	BalanceSumsBwd Op = "balance_sums_bwd"
	BalanceLoss    Op = "balance_loss"
	BalanceLossBwd Op = "balance_loss_bwd"
	BalanceEach    Op = "balance_each"
	BalanceEachBwd Op = "balance_each_bwd"
	Surplus        Op = "surplus"
	SignStep       Op = "sign_step"
	ZLoss          Op = "z_loss"
	ZLossBwd       Op = "z_loss_bwd"
	Jitter         Op = "jitter"
	GateRows       Op = "gate_rows"
	GateRowsBwd    Op = "gate_rows_bwd"
	KindRows       Op = "kind_rows"
	KindExperts    Op = "kind_experts"
	KindSurplus    Op = "kind_surplus"
)

// Flags of a router in Attr.I[0], above its score.
const (
	routeNormalize = 1 << (4 + iota)
	routeFloor
	routeScore = 1<<4 - 1
)

// RouterAttr is a router as attributes.
func RouterAttr(r routing.Router) Attr {
	a := Attr{I: [4]int{int(r.Score), r.Groups, r.Kept, r.Best}, F: [2]float64{r.Scale, r.Eps}}
	if r.Normalize {
		a.I[0] |= routeNormalize
	}
	if r.Floor {
		a.I[0] |= routeFloor
	}
	return a
}

// RouterOf is the router of attributes that RouterAttr made.
func RouterOf(a Attr) routing.Router {
	return routing.Router{Score: routing.Score(a.I[0] & routeScore), Normalize: a.I[0]&routeNormalize != 0,
		Floor: a.I[0]&routeFloor != 0, Groups: a.I[1], Kept: a.I[2], Best: a.I[3], Scale: a.F[0], Eps: a.F[1]}
}

var _ = register(Spec{Op: Route, Sig: "logits[t,e]f32 bias[e]f32? -> w[t,k]f32 idx[t,k]i32",
	Source: "arXiv:2101.03961; groups and bias arXiv:2412.19437 §2.1.2",
	Doc: "The k experts of each token, the best first, and their weights, by the router that " +
		"the attributes are (RouterAttr): see routing.Worker.Row. Computed in float64, rounded once."},
	Spec{Op: RouteBwd, Sig: "dw[t,k]f32 logits[t,e]f32 idx[t,k]i32 -> dlogits[t,e]f32",
		Doc: "The gradient of route's weights; what was chosen is taken as given. Attributes as for route."},
	Spec{Op: RouteOrder, Sig: "idx[t,k]i32 w[t,k]f32? at[p]i32? -> from[r]i32 slot[t,k]i32 counts[p]i32",
		Doc: "Rows in order of (place, token): row i is from[i] = t·k+j, token t's for expert idx[t,j]; " +
			"slot[t,j] is where that row lies; counts[i] is the rows of place i. at[i] is the expert that lies " +
			"at place i, without it expert i. Every expert has a place; token t's row for one that has c of them " +
			"goes to that of number t mod c. With F[0] > 0 a place takes at most ⌈F[0]·t·k/p⌉ rows: the first in " +
			"order of tokens, or with I[0] = 1 those of the greatest weights, of equal ones the first. Rows that are " +
			"not taken have slot -1, and from is -1 behind the last row that is. Tokens whose idx is -1 have no rows."},
	Spec{Op: Spread, Sig: "x[t,d]A from[r]i32 w[*]f32? -> y[r,d]A", Doc: "y[i] = x[from[i]/I[0]], times " +
		"w[from[i]] if there is w [t, I[0]]; 0 where from[i] < 0. I[0] is k. It is the gradient of mix."},
	Spec{Op: Mix, Sig: "x[r,d]A slot[t,k]i32 w[t,k]f32? -> y[t,d]A",
		Doc: "y[i] = Σ over j of w[i,j]·x[slot[i,j]], or without w of x[slot[i,j]], in order " +
			"of j in float32, rounded once; slots outside x add nothing. It is the gradient of spread."},
	Spec{Op: MixDW, Sig: "dy[t,d]A x[r,d]A slot[t,k]i32 -> dw[t,k]f32",
		Doc: "dw[i,j] = Σ dy[i]·x[slot[i,j]], 0 for slots outside x: the gradient of mix's weights."},
	Spec{Op: BalanceSums, Sig: "logits[t,e]f32 cu[c+1]i32 -> sums[2,e]f32", Source: "arXiv:2101.03961 §2.2",
		Doc: "Over the rows that sequences have, rows cu[0]:cu[c] less I[2], the place of the first: " +
			"sums[0,i] counts those among whose I[0] greatest scores i is, sums[1,i] adds i's share of " +
			"the row's scores. I[1] is the score, a routing.Score. Neither bias nor groups play a part."},
	Spec{Op: BalanceSumsBwd, Sig: "dsums[2,e]f32 logits[t,e]f32 cu[c+1]i32 -> dlogits[t,e]f32",
		Doc: "The gradient of balance_sums; counts have none. Attributes as there."}, Spec{Op: BalanceLoss,
		Sig: "sums[2,e]f32 -> loss[1]f32", Source: "arXiv:2101.03961 §2.2", Doc: "F[0]·Σ over i of " +
			"sums[0,i]·sums[1,i] / n², where n is Σ sums[0]/I[0], the number of rows that were counted, in float64; " +
			"0 if there were none."}, Spec{Op: BalanceLossBwd, Sig: "dloss[1]f32 sums[2,e]f32 -> dsums[2,e]f32",
		Doc: "The gradient of balance_loss; counts have none, so dsums[0] = 0."},
	Spec{Op: BalanceEach, Sig: "logits[t,e]f32 cu[c+1]i32 -> loss[1]f32", Source: "arXiv:2412.19437 §2.1.2",
		Doc: "F[0] times the mean over the sequences, of those that have rows, of the loss that balance_sums " +
			"and balance_loss give of each alone with a factor of 1. I[0] and I[1] as for balance_sums."},
	Spec{Op: BalanceEachBwd, Sig: "dloss[1]f32 logits[t,e]f32 cu[c+1]i32 -> dlogits[t,e]f32",
		Doc: "The gradient of balance_each; counts have none."},
	Spec{Op: Surplus, Sig: "idx[t,k]i32 cu[c+1]i32 -> n[e]f32", Source: "arXiv:2408.15664",
		Doc: "Of the rows that sequences have, as in balance_sums with I[2], how many " +
			"go to each expert, less the mean of all experts. I[0] = Accumulate adds into n."},
	Spec{Op: SignStep, Sig: "g[...]f32 clip[3]f64 -> p[...]f32", Source: "arXiv:2408.15664",
		Doc: "p -= F[0]·sign(g), in place; with overflow = 1 nothing changes. The clip factor plays no part."},
	Spec{Op: ZLoss, Sig: "logits[t,e]f32 cu[c+1]i32 -> loss[1]f32", Source: "arXiv:2202.08906 §3.3",
		Doc: "F[0]·Σ (log Σ exp logits)² / n over the rows that sequences have, as in " +
			"balance_sums with I[2]; n is how many those are on all ranks together. In float64."},
	Spec{Op: ZLossBwd, Sig: "dloss[1]f32 logits[t,e]f32 cu[c+1]i32 -> dlogits[t,e]f32",
		Doc: "The gradient of z_loss."}, Spec{Op: Jitter, Sig: "x[t,d]A key[t]i64 -> y[t,d]A",
		Source: "arXiv:2101.03961 §2.2", Doc: "y = x·(1 + F[0]·(2u-1)) with u as in dropout, of " +
			"key, I[0] and the element: uniform within F[0] of 1. The gradient is the same call on dy."},
	Spec{Op: GateRows, Sig: "x[t,d]A z[t,1]f32 -> y[t,d]A", Doc: "y[i] = sigmoid(z[i])·x[i]."},
	Spec{Op: GateRowsBwd, Sig: "dy[t,d]A x[t,d]A z[t,1]f32 -> dx[t,d]A dz[t,1]f32",
		Doc: "The gradients of gate_rows; sums over d in float32."},
	Spec{Op: KindRows, Sig: "x[t,d]A kind[t]i32 -> y[t,d]A",
		Doc: "y[i] = x[i] where kind[i] = I[0], else 0. The gradient is the same call on dy."},
	Spec{Op: KindExperts, Sig: "idx[t,k]i32 kind[t]i32 -> own[t,k]i32",
		Doc: "own[i] = idx[i] where kind[i] = I[0], else -1: tokens of another kind go to no expert."},
	Spec{Op: KindSurplus, Sig: "own[t,k]i32 -> n[e]f32", Source: "arXiv:2408.15664",
		Doc: "Of what kind_experts gives, how many rows go to each expert, less the mean of all experts; tokens " +
			"that go to none are not counted. I[0] = Accumulate adds into n."})

func init() {
	extra[Route] = func(c *Call) error {
		return RouterOf(c.Attr).Check(c.In[0].Shape[1], c.Out[0].Shape[1])
	}
	extra[RouteBwd] = func(c *Call) error {
		return RouterOf(c.Attr).Check(c.In[1].Shape[1], c.In[0].Shape[1])
	}
	extra[RouteOrder] = func(c *Call) error { return checkRows(c.Out[0].Shape[0], c.In[0].Shape) }
	extra[Spread] = func(c *Call) error {
		if c.Attr.I[0] < 1 {
			return fmt.Errorf("experts a token I[0] are %d", c.Attr.I[0])
		}
		if len(c.In) > 2 && c.In[2] != nil && c.In[2].Len() != c.In[0].Shape[0]*c.Attr.I[0] {
			return fmt.Errorf("weights %v for %d experts a token of %v", c.In[2], c.Attr.I[0], c.In[0])
		}
		return nil
	}
	extra[BalanceSums] = func(c *Call) error { return checkBalance(c.Attr, c.In[0].Shape[1]) }
	extra[BalanceEach] = extra[BalanceSums]
	extra[BalanceEachBwd] = func(c *Call) error { return checkBalance(c.Attr, c.In[1].Shape[1]) }
	extra[BalanceSumsBwd] = func(c *Call) error { return checkBalance(c.Attr, c.In[1].Shape[1]) }
}

// checkRows checks that there is one row for each choice of an expert by a token.
func checkRows(rows int, idx []int) error {
	if rows != idx[0]*idx[1] {
		return fmt.Errorf("%d rows for %d tokens of %d experts each", rows, idx[0], idx[1])
	}
	return nil
}

func checkBalance(a Attr, experts int) error {
	return routing.Router{Score: routing.Score(a.I[1])}.Check(experts, a.I[0])
}
