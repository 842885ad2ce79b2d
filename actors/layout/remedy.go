package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// remedyRanks bounds how many times more ranks a remedy may ask for, and remedyTries how many plans are laid
// out in search of one.
const (
	remedyRanks = 1024
	remedyTries = 96
	// widest is the most ranks of tensor parallelism that a remedy asks for: those of one host
	widest = 8
)

// Remedy says what to change in a plan that does not fit: the settings of the smallest plan that does, of
// those with the same replicas and more pipeline stages, tensor parallelism, sharding or recomputation; or
// that there is none. room is the memory of a rank among so many, in bytes; price settles what the layout
// costs on a machine, and may be nil.
func Remedy(c *configs.Config, room func(ranks int) int64, price func(*Design)) string {
	p, tries, base := &c.Run.Plan, 0, int64(0)
	for _, w := range changes(p, c.Model.Layers) {
		// a rank's share shrinks with the ranks, and with replicas that share state out, and hardly faster
		hopeless := base / int64(4*w.more*max(1, p.DP))
		if tries == remedyTries || hopeless > room(w.more) {
			continue
		}
		l := laidOut(c, w.settings, price)
		if l == nil {
			continue
		}
		tries++
		need := int64(0)
		for r := range l.Ranks {
			m := l.Memory(r)
			need = max(need, m.Total(), m.WorstTotal())
		}
		if base == 0 {
			base = need
		} else if need <= room(l.World()) {
			return fmt.Sprintf("try %s, the smallest change that fits (%d ranks of %s)",
				strings.Join(w.settings, " "), l.World(), tensor.Bytes(need))
		}
	}
	return fmt.Sprintf("no plan of up to %d times as many ranks fits: try a smaller train.micro_batch or "+
		"data.seq_len, or devices with more memory", remedyRanks)
}

// change is a plan by what is different, and how many times as many ranks it has.
type change struct {
	more     int
	settings []string
}

// changes lists plans by how many more ranks they take, from the plan itself on; of as many ranks those that
// change least come first.
func changes(base *configs.Plan, layers int) (out []change) {
	for more := 1; more <= remedyRanks; more *= 2 {
		for wide := 1; wide <= more && (wide == 1 || base.TP*wide <= widest); wide *= 2 {
			s, deep := []string(nil), more/wide
			if deep > 1 {
				if base.PP*deep*max(1, base.VirtualStages) > layers {
					continue
				}
				s = append(s, fmt.Sprintf("plan.pp=%d", base.PP*deep))
			}
			if wide > 1 {
				s = append(s, fmt.Sprintf("plan.tp=%d", base.TP*wide))
			}
			for _, s := range sharded(base, s) {
				out = append(out, change{more, s})
			}
		}
	}
	return out
}

// sharded are settings, and the same with state in more parts and with recomputation.
func sharded(p *configs.Plan, settings []string) (out [][]string) {
	zeros := []int{p.Zero}
	if p.DP > 1 {
		zeros = append(zeros, []int{1, 2, 3}[min(p.Zero, 3):]...)
	}
	for _, policy := range slices.Compact([]string{p.Recompute, "full"}) {
		for _, zero := range zeros {
			s := slices.Clone(settings)
			if zero != p.Zero {
				s = append(s, fmt.Sprintf("plan.zero=%d", zero))
			}
			if policy != p.Recompute {
				s = append(s, "plan.recompute="+policy)
			}
			out = append(out, s)
		}
	}
	return out
}

// laidOut lays a configuration out with other settings, nil where that is not possible.
func laidOut(c *configs.Config, settings []string, price func(*Design)) *Layout {
	other, err := c.With(settings...)
	if err != nil {
		return nil
	}
	j, err := FromConfig(other)
	if err != nil {
		return nil
	}
	if price != nil {
		price(j)
	}
	l, err := New(j)
	if err != nil {
		return nil
	}
	return l
}
