package profiler

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// HoldingsShown is how many rows of the memory at its peak are printed; the files have all.
const HoldingsShown = 20

// pool is a rank's memory.
type pool struct {
	name string
	*tensor.Pool
	backend kernels.Backend
}

// RankMemory is who held what of a rank's tensors when most was live.
type RankMemory struct {
	Rank string           `json:"rank"`
	Peak int64            `json:"bytes"`
	Held []tensor.Holding `json:"held"` // the most first
	// Work is the most that a device's call had beside them, of the operation WorkOf; 0 on a processor.
	Work   int64      `json:"work_bytes,omitempty"`
	WorkOf kernels.Op `json:"work_of,omitempty"`
}

// memory is that of all ranks of this process, by their names.
func (p *Profiler) memory() (all []RankMemory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.pools {
		m := RankMemory{Rank: x.name, Held: x.AtPeak()}
		for _, h := range m.Held {
			m.Peak += h.Bytes
		}
		if d, ok := x.backend.(interface {
			MostWork() (op kernels.Op, bytes int64)
		}); ok {
			m.WorkOf, m.Work = d.MostWork()
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b RankMemory) int { return cmp.Compare(a.Rank, b.Rank) })
	return all
}

// PrintMemory prints who held what of each rank's memory at its peak, at most so many rows a rank; 0 is all of them.
func (r ProfileReport) PrintMemory(w io.Writer, most int) {
	if len(r.Memory) == 0 {
		return
	}
	fmt.Fprintln(w, "memory at its peak")
	t := newTable(w, "rank", "tensor", "block", "tensors", "bytes", "share")
	for _, m := range r.Memory {
		for i, h := range m.Held {
			if most > 0 && i == most {
				t.AppendRow(table.Row{m.Rank, fmt.Sprintf("and %d more", len(m.Held)-i)})
				break
			}
			block := ""
			if h.Block >= 0 {
				block = fmt.Sprint(h.Block)
			}
			t.AppendRow(table.Row{m.Rank, h.Name, block, h.Tensors, tensor.Bytes(h.Bytes),
				unit.Percent(float64(h.Bytes) / float64(m.Peak))})
		}
		t.AppendRow(table.Row{m.Rank, "all", "", "", tensor.Bytes(m.Peak), "100.00%"})
		if m.Work > 0 {
			t.AppendRow(table.Row{m.Rank, fmt.Sprintf("beside it, at most: work of %s", m.WorkOf), "", "",
				tensor.Bytes(m.Work)})
		}
		t.AppendSeparator()
	}
	t.Render()
}
