package fit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/family"
)

// Sensitive tells what a plan would change of what a run minimises: some losses of the router, bounds and scales are of
// the rows, or of the part of a weight, that a rank has at once, and no plan that does so is proposed.
type Sensitive struct {
	why    map[string][]string // by key, whatever its value above the least
	blocks int                 // of a scale, numbers of a weight along an axis; 0 for none
	name   string              // of the precision
	cut    map[string][]int    // by key, the lengths of such axes that it cuts
}

// Keys of a plan that what a run minimises may depend on, with what a rule is then of.
var sharedOut = []struct{ key, of string }{{"plan.chunk_size", "each chunk"}, {"plan.cp", "each rank's rows"},
	{"plan.tp", "each rank's part"}, {"plan.ep", "the rows that several ranks send"},
	{"plan.etp", "each rank's part"}, {"plan.dp", "the microbatches of all replicas so far"},
	{"train.micro_batch", "each microbatch"}}

// lossOf are the keys that change a loss of the router.
var lossOf = map[string][]string{"pooled": {"chunk_size", "micro_batch"}, "layer": {"chunk_size", "micro_batch"},
	"model": {"chunk_size", "micro_batch"}, "sequence": {"chunk_size"}, "batch": {"chunk_size", "micro_batch", "dp"}}

// SensitiveTo is what of a run's objective depends on how rows and weights are cut.
func SensitiveTo(c *configs.Config, m *family.Model) Sensitive {
	t, s := &c.Run.Train, Sensitive{why: map[string][]string{}, cut: map[string][]int{}}
	add := func(what string, keys ...string) {
		for _, x := range sharedOut {
			if _, key, _ := strings.Cut(x.key, "."); slices.Contains(keys, key) {
				s.why[x.key] = append(s.why[x.key], what+x.of)
			}
		}
	}
	if m.Spec.Mixes() {
		const loss, bound = "train.router.loss is taken of ", "train.router.capacity bounds the rows that an expert takes of "
		if kind := t.Router.Loss; kind != "model" || family.Mixture.Of(m.Config).RouterLogits {
			add(loss, lossOf[kind]...)
		}
		if t.Router.Capacity > 0 {
			add(bound, "chunk_size", "micro_batch", "cp", "tp")
		}
	}
	p, err := kernels.PrecisionOf(t.LowPrecision)
	low, x := Low(c, m), kernels.Precisions[max(0, p)]
	if err != nil || low == nil || x.Delayed { // whose greatest numbers are those of all ranks
		return s
	}
	if s.name, s.blocks = x.Name, max(x.Act.Columns, x.Weight.Columns); s.blocks == 0 || x.Name == "nvfp4" {
		add("train.low_precision = "+x.Name+" has a scale for all of a product's operand, which is that of ",
			"chunk_size", "micro_batch", "cp", "tp", "ep", "etp")
	}
	for _, p := range m.Params(nil) {
		layer := p.Block < len(m.Blocks) && m.Blocks[p.Block].Recompute && len(p.Shape) > 1 && !routes(m, p)
		if !layer || low(p.Name) == 0 {
			continue
		}
		key, n, k := "plan.tp", p.Shape[len(p.Shape)-2], p.Shape[len(p.Shape)-1]
		if p.Experts {
			key = "plan.etp"
		}
		for _, x := range []int{n, k} { // the width of the residual stream is cut in a square alone
			if x != m.Spec.Hidden || n == k {
				s.cut[key] = append(s.cut[key], x)
			}
		}
	}
	return s
}

// To is why a run minimises something else with another value of a key than the least; nil where it does not.
func (s Sensitive) To(key string, n int) []string {
	out := s.why[key]
	for _, axis := range s.cut[key] {
		if part := axis / max(1, n); out == nil && n > 1 && axis%n == 0 && s.blocks > 0 && part%s.blocks != 0 {
			return []string{fmt.Sprintf("train.low_precision = %s has blocks of %d numbers, which do not fit into a rank's %d of %d",
				s.name, s.blocks, part, axis)}
		}
	}
	return out
}

// Keeps reports whether a plan minimises what the run file's own does; both have values by key, of which 1 is the least.
func (s Sensitive) Keeps(own, plan map[string]int) bool {
	for key, n := range plan {
		settled := key == "plan.dp" || key == "train.micro_batch" // values that the file has chosen, and not only permits
		if n != cmp.Or(own[key], 1) && (n != 1 || settled) && s.To(key, n) != nil {
			return false
		}
	}
	return true
}

// Degrees are the values of a plan's keys that what a run minimises may depend on.
func Degrees(c *configs.Config) map[string]int {
	p := &c.Run.Plan
	return map[string]int{"plan.tp": p.TP, "plan.cp": p.CP, "plan.ep": p.EP, "plan.etp": p.ETP, "plan.dp": p.DP,
		"plan.chunk_size": p.ChunkSize + 1, "train.micro_batch": c.Run.Train.MicroBatch}
}

// sameObjective notes what a plan changes of what is minimised. The size of a microbatch is said by what it is for.
func (r rules) sameObjective() {
	s, has := SensitiveTo(r.c, r.m), Degrees(r.c)
	for _, x := range sharedOut {
		if why := s.To(x.key, has[x.key]); has[x.key] > 1 && why != nil && x.key != "train.micro_batch" {
			r.c.Notices = append(r.c.Notices, x.key+" changes what the run minimises, by up to some hundredths of the loss: "+
				strings.Join(why, "; ")+". lfactor plan does not propose it by itself")
		}
	}
}
