package profile

// Event is a job or kernel call of the last step, for drawings: seconds since the step's beginning.
type Event struct {
	Lane       int
	Name       string // of a kernel; of a job, its phase
	Kernel     bool
	Start, End float64
}

// LastStep gives the jobs and kernel calls of the last step, lane by lane, and its length in seconds; the
// jobs of loaders come last, as lane number len(Report.Lanes).
func (r *Recorder) LastStep() (events []Event, length float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.borders()
	n := len(b)
	if n < 2 {
		return nil, 0
	}
	in := span{b[n-2], b[n-1]}
	put := func(lane int, name string, kernel bool, x span) {
		if x.start < in.end && x.end > in.start {
			events = append(events, Event{Lane: lane, Name: name, Kernel: kernel, Start: float64(max(x.start,
				in.start)-in.start) / 1e9,
				End: float64(min(x.end, in.end)-in.start) / 1e9})
		}
	}
	for i, l := range r.lanes {
		l.mu.Lock()
		for p, jobs := range l.jobs {
			for _, x := range jobs {
				put(i, Phase(p).String(), false, x)
			}
		}
		for _, c := range l.calls {
			put(i, l.kinds[c.kind].String(), true, c.span)
		}
		l.mu.Unlock()
	}
	for _, x := range r.loading {
		put(len(r.lanes), "loader", false, x)
	}
	return events, float64(in.end-in.start) / 1e9
}
