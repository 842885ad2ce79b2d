package sim

import (
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// wires is what the ranks of one program share.
type wires struct {
	in, out [][]core.Port // by stage
	local   []int         // place of a stage among its rank's
	micro   int
	chunks  int
	stages  int // most of a rank
}

// frame numbers the frames of a rank.
func (w *wires) frame(a plan.Action) int {
	return (w.local[a.Stage]*w.micro+int(a.Micro))*w.chunks + int(a.Chunk)
}

// wiresKey finds the wiring that ranks with the same program and the same ports share.
type wiresKey struct {
	p     *plan.Program
	first *core.Port
}

// wiresOf makes the tables of a rank's program, once for all ranks that have it.
func (s *Sim) wiresOf(l *core.RankLayout) *wires {
	key := wiresKey{p: l.Program}
	if len(l.Ports) > 0 {
		key.first = &l.Ports[0]
	}
	if w := s.wires[key]; w != nil {
		return w
	}
	stages := len(l.Program.StageRank)
	w := &wires{in: make([][]core.Port, stages), out: make([][]core.Port, stages),
		local: make([]int, stages), micro: l.Program.Micro, chunks: 1}
	for _, n := range l.Program.Chunks {
		w.chunks = max(w.chunks, n)
	}
	for _, p := range l.Ports {
		w.out[p.From], w.in[p.To] = append(w.out[p.From], p), append(w.in[p.To], p)
	}
	count := map[int]int{}
	for stage, row := range l.Program.StageRank {
		if l.Program.Homes != nil {
			row = 0 // a rank may have any stage
		}
		w.local[stage] = count[row]
		count[row]++
		w.stages = max(w.stages, count[row])
	}
	s.wires[key] = w
	return w
}
