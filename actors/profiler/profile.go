// Package profiler watches a run: which kernels and jobs its time went to, beside what the machine reaches.
package profiler

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/profile"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/topology/machine"
)

// ProfiledSteps bounds what --profile looks at: the steps after the first, which warms up.
const ProfiledSteps = 10

// Profiler records the steps of a run in this process.
type Profiler struct {
	Rec   *profile.Recorder
	mu    sync.Mutex
	lanes map[int]*profile.Lane
	pools []pool // of ranks
	// threads is the most that a rank's backend has; alone is whether all ranks are in this process.
	threads int
	alone   bool
	// Device is what ranks compute on, as the key device says; "" is the processor.
	Device string
}

// NewProfiler makes a profiler of so many steps after one that warms up.
func NewProfiler(steps int) *Profiler {
	return &Profiler{Rec: profile.New(steps), lanes: map[int]*profile.Lane{}}
}

// Attach puts the recorder between a run's ranks, their backends and whoever watches the run.
func (p *Profiler) Attach(l *layout.Layout, o *host.RunOptions) {
	p.alone = o.Procs < 2
	backend, wrap, trace := o.Backend, o.WrapDevice, o.Trace
	o.Backend = func(rank int) kernels.Backend {
		b := backend(rank)
		threads := 1
		if t, ok := b.(interface{ Threads() int }); ok {
			threads = t.Threads()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.threads = max(p.threads, threads)
		p.lanes[rank] = p.Rec.Lane(l.Design.Mesh.Name(rank), threads)
		return p.lanes[rank].Wrap(b)
	}
	o.WrapDevice = func(rank int, d host.Device) host.Device {
		if wrap != nil {
			d = wrap(rank, d)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return profiled{d, p.lanes[rank]}
	}
	o.Made = func(rank int, r *host.Rank) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pools = append(p.pools, pool{l.Design.Mesh.Name(rank), r.Config().Pool.Note(), r.Config().Backend})
	}
	o.Trace = func(e host.TraceEvent) {
		if e.Job.Kind == actors.LoadBatch {
			p.Rec.Load(e.End - e.Start)
		}
		if trace != nil {
			trace(e)
		}
	}
}

// profiled notes a rank's jobs.
type profiled struct {
	host.Device
	lane *profile.Lane
}

// Run implements host.Device.
func (d profiled) Run(j actors.Job) (res host.Result, err error) {
	d.lane.Job(jobPhase(j), j.Step, func() { res, err = d.Device.Run(j) })
	return
}

// jobPhase sorts a job into the phases of the report; everything that is no segment and no update is saving.
func jobPhase(j actors.Job) profile.Phase {
	switch {
	case j.Kind == actors.UpdatePhase:
		return profile.Optimizer
	case j.Kind != actors.RunSegment:
		return profile.Save
	case j.Action.Kind == plan.F:
		return profile.Forward
	}
	return profile.Backward
}

// ProfileReport is a report with the peaks that it is held to.
type ProfileReport struct {
	*profile.Report
	Peaks  kernels.Peaks `json:"-"`
	Memory []RankMemory  `json:"memory_at_peak"`
	alone  bool
}

// Report sums up, with peaks measured now by as many threads as a lane has, or those of the device that computes;
// false if no step was recorded in full.
func (p *Profiler) Report() (ProfileReport, bool) {
	if !kernels.OnProcessor(p.Device) {
		return p.With(kernels.DeviceRates(p.Device))
	}
	b := kernels.OpenProber(p.threads)
	defer kernels.Close(b)
	return p.With(b.Peaks())
}

// With is the report against the peaks of a machine; false if fewer than two steps ran.
func (p *Profiler) With(k kernels.Peaks) (ProfileReport, bool) {
	r, ok := p.Rec.Report(profile.Peaks{Flops: k.TeamMultiplyAdd, Pairs: k.TeamTiles, Memory: k.Memory})
	return ProfileReport{r, k, p.memory(), p.alone}, ok
}

// PrintPhases prints where the time of each lane went, a step on average.
func (r ProfileReport) PrintPhases(w io.Writer) {
	t := newTable(w, "rank", "phase", "a step", "share", "in kernels", "outside")
	n := float64(r.Steps)
	for _, l := range r.Lanes {
		row := func(name string, s, kernels float64) {
			t.AppendRow(table.Row{l.Name, name, unit.Seconds(s / n), unit.Percent(s / l.Wall),
				unit.Seconds(kernels / n), unit.Percent((s - kernels) / l.Wall)})
		}
		for _, ph := range l.Phases {
			row(ph.Name, ph.Seconds, ph.Kernels)
		}
		handing := "messages"
		if !r.alone {
			handing = "messages, other processes"
		}
		for _, x := range []struct {
			name       string
			s, kernels float64
		}{{"loader", l.Loader, 0}, {"saving", l.Saving, l.Copying}, {handing, l.Messages, 0}} {
			row(x.name, x.s, x.kernels)
		}
		t.AppendRow(table.Row{l.Name, "waiting for ranks", unit.Seconds(l.Waiting / n),
			unit.Percent(l.Waiting / l.Wall), "", ""})
		t.AppendRow(table.Row{l.Name, "step", unit.Seconds(l.Wall / n), "100.00%",
			unit.Seconds(l.Kernels / n), unit.Percent((l.Wall - l.Waiting - l.Kernels) / l.Wall)})
		t.AppendSeparator()
	}
	t.Render()
}

// PrintKernels prints the kernels that took longest, at most so many; 0 is all of them.
func (r ProfileReport) PrintKernels(w io.Writer, most int) {
	t := newTable(w, "kernel", "dtype", "calls a step", "a step", "share", "GFLOP/s", "GB/s", "of peak")
	n := float64(r.Steps)
	for i, k := range r.Table {
		if most > 0 && i == most {
			t.AppendRow(table.Row{fmt.Sprintf("and %d more", len(r.Table)-i)})
			break
		}
		rate := ""
		if k.Flops > 0 {
			rate = fmt.Sprintf("%.1f", k.Flops/k.Seconds/1e9)
		}
		t.AppendRow(table.Row{k.Name, k.DType, fmt.Sprintf("%.4g", float64(k.Calls)/n), unit.Seconds(k.Seconds / n),
			unit.Percent(k.Share), rate, fmt.Sprintf("%.1f", k.Bytes/k.Seconds/1e9), ofPeak(k.OfPeak)})
	}
	t.Render()
	fmt.Fprintf(w, "outside kernels %s of the time, over %d steps of %s\n", unit.Percent(r.Share), r.Steps,
		unit.Seconds(r.Wall/n))
}

// ofPeak is empty where the peak is not known.
func ofPeak(share float64) string {
	if share == 0 {
		return ""
	}
	return unit.Percent(share)
}

// Write leaves the tables, the numbers and the drawing at base.txt, base.json and base.svg.
func (p *Profiler) Write(base string, r ProfileReport) error {
	if err := os.MkdirAll(filepath.Dir(base), 0o700); err != nil {
		return err
	}
	f, err := os.Create(base + ".txt")
	if err != nil {
		return err
	}
	fmt.Fprintf(f, "%s\n", time.Now().Format(time.RFC3339))
	if r.Peaks.Memory > 0 {
		r.printPeaks(f)
	}
	r.PrintPhases(f)
	r.PrintKernels(f, 0)
	r.PrintMemory(f, 0)
	if err := f.Close(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".json", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return machine.Create(base+".svg", func(w *bufio.Writer) { p.Draw(w, r) })
}

func (r ProfileReport) printPeaks(f io.Writer) {
	fmt.Fprintf(f, "peaks: %.1f GFLOP/s of float32 multiply-adds", r.Peaks.TeamMultiplyAdd/1e9)
	if r.Peaks.TeamTiles > 0 {
		fmt.Fprintf(f, ", %.1f of bfloat16 products", r.Peaks.TeamTiles/1e9)
	}
	fmt.Fprintf(f, ", %.1f GB/s of memory\n", r.Peaks.Memory/1e9)
}

// newTable is a table that is written to w.
func newTable(w io.Writer, columns ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(columns)
	return t
}
