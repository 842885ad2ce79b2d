package sim

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
)

// placed is where a rank's experts lie, in symbols: by the last move, which an epoch and a step name; 0 is in order.
type placed struct {
	now    int64
	copies map[int64]int64 // by step: what a copy in memory holds
}

// keep notes where experts lie in a copy.
func (p *placed) keep(step int64) {
	if p.copies == nil {
		p.copies = map[int64]int64{}
	}
	p.copies[step] = p.now
}

// file notes where experts lie in a checkpoint.
func (m *Monitor) file(rank int, step int64) {
	m.filed[step] = m.books[rank].placed.now
}

// replace notes where experts lie in the state that a rank goes to.
func (m *Monitor) replace(rank int, j *actors.Job) {
	p := &m.books[rank].placed
	switch {
	case len(j.In) > 0:
		o := j.In[0].Payload.(*Blob).of
		p.now = m.books[m.rank(o.From)].placed.copies[o.Step]
	case j.Segment == core.FromDisk:
		p.now = m.filed[j.Step]
	}
}

// bookPlaces notes a move at its last job, and holds that all ranks run a step with experts at the same places.
func (m *Monitor) bookPlaces(rank int, j *actors.Job) {
	p, epoch := &m.books[rank].placed, int64(m.awake[rank])
	if j.Kind == actors.UpdatePhase {
		if n := len(m.segments(rank, j)); core.MovesExperts(j.Values) && int(j.Segment) == n-1 {
			p.now = epoch<<32 + j.Step
		}
		return
	}
	k := [2]int64{epoch, j.Step}
	want, known := m.places[k]
	if !known {
		m.places[k] = p.now
	} else if want != p.now {
		m.broken("rank %d runs step %d with experts as they lay after step %d of epoch %d, others as after "+
			"step %d of epoch %d", rank, j.Step, int32(p.now), p.now>>32, int32(want), want>>32)
	}
}
