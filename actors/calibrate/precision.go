package calibrate

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
)

// Products measures from how many tokens on the three products with each kind of weight of a model are
// faster in a precision of few bits than in bf16, as a table that train.adaptive.policy reads. See is told
// of each kind as it is done; nil is nobody.
func Products(c *configs.Config, m *family.Model, precision string, threads int, see func(text string)) (*fit.Policy,
	error) {
	low, err := kernels.PrecisionOf(precision)
	if err != nil {
		return nil, err
	}
	b, err := kernels.Open(kernels.CPU, kernels.Options{Threads: threads})
	if err != nil {
		return nil, err
	}
	defer kernels.Close(b)
	p, plan := &c.Run.Plan, &fit.Policy{Version: 1, Threshold: 1, Recipe: precision}
	tp, etp, gemms := max(1, p.TP), max(1, p.ETP), m.Spec.Experts.Experts/max(1, p.EP)
	dense, grouped := map[string]map[string][]fit.PolicyRule{}, map[string][]fit.PolicyRule{}
	for _, q := range m.Params(nil) {
		kind, name := fit.PolicyName(q.Name, q.Experts)
		if kind == "" || q.Experts && grouped[kind] != nil || !q.Experts && dense[kind][name] != nil {
			continue
		}
		n, k := q.Shape[len(q.Shape)-2], q.Shape[len(q.Shape)-1]
		share, rule := tp, fit.PolicyRule{TP: tp}
		if q.Experts {
			share, rule = etp, fit.PolicyRule{ETP: etp, Gemms: gemms}
		}
		if kind == "row" || kind == "row_grouped" {
			k /= share
		} else if kind != "duplicated" {
			n /= share
		}
		rule.Least, rule.Speedup = crossing(b, low, n, k, fit.Rows(c))
		if q.Experts {
			grouped[kind] = []fit.PolicyRule{rule}
		} else {
			if dense[kind] == nil {
				dense[kind] = map[string][]fit.PolicyRule{}
			}
			dense[kind][name] = []fit.PolicyRule{rule}
		}
		if see != nil {
			see(fmt.Sprintf("%s %s [%d %d]: %.2f times bf16's speed", kind, name, n, k, rule.Speedup))
		}
	}
	plan.Rules = map[string]json.RawMessage{}
	put := func(kind string, rules any) {
		text, err := json.Marshal(rules)
		if err != nil {
			panic("calibrate: numbers that JSON does not hold: " + err.Error())
		}
		plan.Rules[kind] = text
	}
	for kind, rules := range dense {
		put(kind, rules)
	}
	for kind, rules := range grouped {
		put(kind, rules)
	}
	return plan, nil
}

// crossing is the least number of tokens, of the powers of two up to those of a microbatch and of that
// itself, with which products are faster than in bf16, and how much faster they are with the most.
func crossing(b kernels.Backend, low, n, k, tokens int) (least int64, speedup float64) {
	least = fit.Never
	var sizes []int
	for t := 128; t < tokens; t *= 2 {
		sizes = append(sizes, t)
	}
	for _, t := range append(sizes, tokens) {
		if speedup = products(b, 0, t, n, k) / products(b, low, t, n, k); speedup > 1 {
			least = min(least, int64(t))
		}
	}
	return least, speedup
}

// products is the median time of the three products with a weight [n k], in seconds.
func products(b kernels.Backend, low, t, n, k int) float64 {
	x, w, dy := random(t, k), random(n, k), random(t, n)
	y, dx, dw := tensor.Make(tensor.BF16, t, n), tensor.Make(tensor.BF16, t, k), tensor.Make(tensor.F32, n, k)
	at, ops := kernels.Attr{I: [4]int{0, low}}, [3]kernels.Op{kernels.LowLinear, kernels.LowLinearDX,
		kernels.LowLinearDW}
	if low == 0 {
		at, ops = kernels.Attr{}, [3]kernels.Op{kernels.Linear, kernels.LinearDX, kernels.LinearDW}
	}
	times := make([]float64, 6)
	for i := range times { // the first warms up
		began := time.Now()
		b.Run(&kernels.Call{Op: ops[0], In: []*tensor.Tensor{x, w, nil}, Out: []*tensor.Tensor{y}, Attr: at})
		b.Run(&kernels.Call{Op: ops[1], In: []*tensor.Tensor{dy, w}, Out: []*tensor.Tensor{dx}, Attr: at})
		b.Run(&kernels.Call{Op: ops[2], In: []*tensor.Tensor{dy, x}, Out: []*tensor.Tensor{dw}, Attr: at})
		times[i] = time.Since(began).Seconds()
	}
	slices.Sort(times[1:])
	return times[3]
}

// random are numbers that no unit takes shortcuts with.
func random(n, k int) *tensor.Tensor {
	v, state := make([]float32, n*k), uint32(n*31+k)
	for i := range v {
		state = state*1664525 + 1013904223
		v[i] = float32(int32(state))/(1<<31) + 0.01
	}
	t := tensor.Make(tensor.BF16, n, k)
	tensor.Narrow(tensor.BF16, v, t.Bytes())
	return t
}
