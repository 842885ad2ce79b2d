package profile

import (
	"cmp"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Peaks are what the threads of a lane can do together, which kernels are compared with; 0 where unknown.
type Peaks struct {
	Flops  float64 // float32 multiply-adds, flops a second
	Pairs  float64 // products of bfloat16, flops a second
	Memory float64 // bytes a second
}

// Report is where the time of some steps went. Seconds are of all those steps; those of lanes are summed.
type Report struct {
	Steps   int         `json:"steps"`
	Wall    float64     `json:"wall_s"` // from the first job of the first step to that of the one after the last, or to the end of the run
	Kernels float64     `json:"kernels_s"`
	Outside float64     `json:"outside_kernels_s"` // on a lane, neither in a kernel nor waiting for another lane
	Share   float64     `json:"outside_share"`     // Outside of the lanes' wall time
	Lanes   []LaneSum   `json:"lanes"`
	Table   []KernelSum `json:"kernels"`
}

// LaneSum is one rank's time; Wall is the sum of the phases, Waiting, Loader, Saving and Messages.
type LaneSum struct {
	Name     string     `json:"name"`
	Threads  int        `json:"threads"`
	Wall     float64    `json:"wall_s"`
	Phases   []PhaseSum `json:"phases"`
	Waiting  float64    `json:"waiting_s"`  // no job, while another rank works
	Loader   float64    `json:"loader_s"`   // no job, while a loader works and no other rank does
	Saving   float64    `json:"saving_s"`   // no job, while neither works and the rank copies or writes what it saves
	Copying  float64    `json:"copying_s"`  // of Saving, in kernels
	Messages float64    `json:"messages_s"` // no job, and nobody else works: handing over between actors
	Kernels  float64    `json:"kernels_s"`
}

// PhaseSum is the jobs of one phase.
type PhaseSum struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Kernels float64 `json:"kernels_s"` // of Seconds
}

// KernelSum is one row of the table of kernels. Sum is Calls calls.
type KernelSum struct {
	Name    string  `json:"name"`
	DType   string  `json:"dtype,omitempty"` // of products
	Calls   int     `json:"calls"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"`             // of the lanes' wall time
	Flops   float64 `json:"flops"`             // 0 for a kernel that is bound by memory
	Bytes   float64 `json:"bytes"`             // operands and results, once each
	OfPeak  float64 `json:"of_peak,omitempty"` // of the peak of its kind: products, or memory
}

// Report sums up the steps that were recorded in full, without the first; false if there are none.
func (r *Recorder) Report(p Peaks) (*Report, bool) {
	r.settle()
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.borders()
	if len(b) < 2 {
		return nil, false
	}
	in := span{b[0], b[len(b)-1]}
	out := &Report{Steps: len(b) - 1, Wall: spans{in}.seconds()}
	work := make([]spans, len(r.lanes))
	for i, l := range r.lanes {
		work[i] = l.work(in)
	}
	loading := r.loading.merge(in)
	rows := map[key]*KernelSum{}
	for i, l := range r.lanes {
		var others spans
		for j := range work {
			if j != i {
				others = append(others, work[j]...)
			}
		}
		s := l.sum(in, work[i], others.merge(in), loading, rows, p)
		out.Lanes = append(out.Lanes, s)
		out.Kernels += s.Kernels
		out.Outside += s.Wall - s.Waiting - s.Kernels
	}
	total := out.Wall * float64(len(out.Lanes))
	out.Share = out.Outside / total
	for _, k := range rows {
		k.Share = k.Seconds / total
		out.Table = append(out.Table, *k)
	}
	slices.SortFunc(out.Table, func(a, b KernelSum) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name), cmp.Compare(a.DType, b.DType))
	})
	return out, true
}

// work is when the lane ran jobs.
func (l *Lane) work(in span) spans {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all spans
	for _, s := range l.jobs[:Save] {
		all = append(all, s...)
	}
	return all.merge(in)
}

// sum adds up one lane, and its calls to the rows.
func (l *Lane) sum(in span, work, others, loading spans, rows map[key]*KernelSum, p Peaks) LaneSum {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LaneSum{Name: l.Name, Threads: l.threads, Wall: spans{in}.seconds()}
	var calls spans
	for _, c := range l.calls {
		if c.start < in.start || c.end > in.end {
			continue
		}
		calls = append(calls, c.span)
		k := l.kinds[c.kind]
		row := rows[k]
		if row == nil {
			row = &KernelSum{Name: k.String()}
			if k.n > 0 {
				row.DType = k.dtype.String()
			}
			rows[k] = row
		}
		row.add(c, k, p)
	}
	calls = calls.merge(in)
	s.Kernels = calls.seconds()
	gaps, saves := spans{in}.without(work), l.jobs[Save].merge(in)
	copies := gaps.and(saves).and(calls) // they may go on while others work
	s.Copying = copies.seconds()
	idle := gaps.without(copies)
	s.Waiting, idle = idle.and(others).seconds(), idle.without(others)
	s.Loader, idle = idle.and(loading).seconds(), idle.without(loading)
	s.Saving, s.Messages = s.Copying+idle.and(saves).seconds(), idle.without(saves).seconds()
	for ph := range Save {
		jobs := l.jobs[ph].merge(in)
		s.Phases = append(s.Phases, PhaseSum{ph.String(), jobs.seconds(), jobs.and(calls).seconds()})
	}
	return s
}

func (s *KernelSum) add(c call, k key, p Peaks) {
	s.Calls++
	s.Seconds += float64(c.end-c.start) / 1e9
	s.Flops += c.flops
	s.Bytes += c.bytes
	peak := p.Flops
	if k.dtype == tensor.BF16 && p.Pairs > 0 {
		peak = p.Pairs
	}
	switch {
	case s.Flops > 0 && peak > 0:
		s.OfPeak = s.Flops / s.Seconds / peak
	case s.Flops == 0 && p.Memory > 0:
		s.OfPeak = s.Bytes / s.Seconds / p.Memory
	}
}
