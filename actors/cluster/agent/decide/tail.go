package decide

import "github.com/lfactor/lfactor/actors/cluster/control"

// tail is what a process wrote last. A head that ends takes with it what it has not written down, or what no
// other head has got from it; the next one is sent that again.
type tail struct {
	gen  int
	seq  int64 // of the newest piece
	last []control.Message
	size int
}

// tailMost bounds what is kept of a process's output, in bytes: more than comes while a head is replaced.
const tailMost = 256 << 10

// keep gives a piece of output its number and keeps it.
func (a *Agent) keep(m *control.Message) {
	k := key{m.Job, m.Proc}
	t := a.tails[k]
	if t == nil || t.gen != m.Gen {
		t = &tail{gen: m.Gen}
		a.tails[k] = t
	}
	t.seq++
	m.At = t.seq
	t.last = append(t.last, *m)
	t.size += len(m.Data)
	for t.size > tailMost && len(t.last) > 1 {
		t.size -= len(t.last[0].Data)
		t.last = t.last[1:]
	}
}

// unheard are the pieces of output that a head lacks and that do not wait for it anyway.
func (a *Agent) unheard(wrote []control.Proc) (out []control.Message) {
	from, to := map[key]int64{}, map[key]int64{}
	for _, p := range wrote {
		if t := a.tails[key{p.Job, p.Proc}]; t != nil && t.gen == p.Gen {
			from[key{p.Job, p.Proc}] = p.Wrote
		}
	}
	for _, m := range a.late {
		if k := (key{m.Job, m.Proc}); m.Kind == control.Output && to[k] == 0 {
			to[k] = m.At
		}
	}
	for _, k := range sorted(a.tails) {
		for _, m := range a.tails[k].last {
			if m.At > from[k] && (to[k] == 0 || m.At < to[k]) {
				out = append(out, m)
			}
		}
	}
	return out
}
