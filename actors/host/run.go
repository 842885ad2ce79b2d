package host

import (
	"fmt"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/family"
)

// RunOptions is what a run needs besides its layout.
type RunOptions struct {
	Coord   core.RunLayout // Ranks and Observer are set by Run
	Backend func(rank int) kernels.Backend
	Fill    family.FillFunc
	Batches BatchFunc
	Members func() []Status      // of pools that Batches wait for; nil for none
	Observe func(actors.Message) // reports, from one goroutine
	Save    func(rank int) Saver // nil for none
	// Begin makes room for a checkpoint; Commit makes it durable from the ranks' parts of the manifest and
	// the coordinator's state (updates, loss scale, good steps, overflows left, and where experts lie as
	// core.LaidOf reads it). Both are nil for none.
	Begin  func(step int64) error
	Commit func(step int64, parts []string, state []float64) error
	// Saved gives the state of a step that is durable, and what to call when it was read: ranks go back to
	// it. Seek makes the next batches those behind a place in the data, as Coord.Place has written it down.
	// Both may be nil where no rank is to come back.
	Saved func(step int64) (family.FillFunc, func(), error)
	// Placed says where experts lie in the state of a step that is durable, or that Fill gives; nil for
	// experts in order.
	Placed func(step int64) []core.Placed
	Seek   func(place string) error
	Stop   <-chan struct{} // closed to end after the step under way
	// Abandon is closed to end without the step under way, which may never end: the step before is saved.
	// Batches that block have to return then.
	Abandon <-chan struct{}
	// called at the end, before devices are waited for: Batches that block have to return; nil for nothing
	Leave func()
	Trace func(TraceEvent)
	Ahead int64 // steps read ahead
	// Proc is this process of Procs; Procs of 0 is one process.
	Proc, Procs int
	// how often this process was started before: its ranks have no state, and ask for one
	Life   int
	Losses <-chan Loss           // processes that have ended, for process 0
	Links  *links.Links          // to the other processes, nil for one process
	On     func() map[int]string // hosts of processes, as far as they are known; nil where all are on this one
	// a worker process calls it when its actors exist; process 0, to wait for the others
	Ready    func() error
	Orphaned <-chan error // ends this process: its parent, or another process, is lost
	// Filter drops a message when it returns false, WrapDevice puts something between a rank and its
	// device: planted faults.
	Filter     func(to actors.Ref, m actors.Message) bool
	WrapDevice func(rank int, d Device) Device
	OnSystem   func(*System) // sees the system once its actors exist
	// Made sees a rank of this process before it has parameters.
	Made    func(rank int, r *Rank)
	OnRanks func([]*Rank) // sees the process's ranks once they have parameters
	Capture *Capture      // keeps messages, nil for none
	Edges   func([]Edge)  // hears at the end what was sent, nil for nobody
	Routing *Routing      // what is done with the choices of routers, nil for nothing
	Sight   *Sight        // what is written down of tensors, nil for nothing
	// Files is the folder of files for what waits on the host beside ranks on processors; "" keeps it in memory.
	Files string
	// Joined tells of each rank of any process whether what its device is sent by another process's device
	// of the same kind may go there without the host; nil for none.
	Joined func(rank int) bool
}

// Loss is the end of a process.
type Loss struct {
	Proc  int
	Times int // that it has ended by now
	Err   error
	Gone  bool // it is not started again: no host has room for it
}

// down tells the coordinator that a rank has ended with its process.
func (x Loss) down(rank int) actors.Message {
	m := actors.Message{Kind: actors.Down, From: layout.RankRef(rank), Step: int64(x.Times), Text: x.Err.Error()}
	if x.Gone {
		m.Member = 1
	}
	return m
}

// observer hands reports to the caller and signals the end.
type observer struct {
	see  func(actors.Message)
	done chan error
	once sync.Once
}

// Receive implements actors.Behaviour.
func (o *observer) Receive(_ actors.Context, m *actors.Message) {
	if m.Kind != actors.Report {
		return
	}
	if o.see != nil {
		o.see(*m)
	}
	switch m.Text {
	case core.TopicEnd:
		o.once.Do(func() { o.done <- nil })
	case core.TopicFailed:
		o.once.Do(func() { o.done <- m.Err })
	}
}

// Waits implements actors.Behaviour.
func (o *observer) Waits() actors.Wait { return actors.Wait{For: actors.None} }

// committer is the coordinator's device: it makes checkpoints durable.
type committer struct{ o RunOptions }

// Run implements Device.
func (c committer) Run(j actors.Job) (Result, error) {
	switch {
	case j.Kind == actors.BeginJob && c.o.Begin != nil:
		return Result{}, c.o.Begin(j.Step)
	case j.Kind == actors.CommitJob && c.o.Commit != nil:
		return Result{}, c.o.Commit(j.Step, strings.Split(j.Text, "\x00"), j.Values)
	}
	return Result{}, nil
}

// Run trains to the end of the run, or until Stop. It returns the run's one error.
//
//lfvet:long few statements, on short lines
func Run(l *layout.Layout, o RunOptions) error {
	size := l.World()
	var remote Remote
	if o.Links != nil {
		remote = o.Links
	}
	sys := NewSystem(l.Design.Seed, layout.FirstRank+actors.Ref(size+max(1, o.Procs)*l.Design.Mesh.Replicas()), remote)
	sys.Trace, sys.filter, sys.life, sys.proc = o.Trace, o.Filter, o.Life, o.Proc
	if o.On != nil {
		sys.on = o.On()[o.Proc]
	}
	sys.names, sys.members = l.ActorName, o.Members
	if sys.capture = o.Capture; o.Capture != nil {
		o.Capture.name, o.Capture.life = l.ActorName, o.Life
	}
	if o.Proc > 0 && o.Coord.Recover {
		sys.lost = make(chan error, 1)
	}
	obs := &observer{see: o.Observe, done: make(chan error, 1)}
	var devices []*Rank
	defer func() {
		if o.Leave != nil {
			o.Leave()
		}
		sys.Stop()
		if o.Edges != nil {
			o.Edges(sys.Edges())
		}
		if o.Links != nil {
			o.Links.Close()
		}
		for _, d := range devices {
			d.Free()
		}
	}()
	dps := map[int]bool{}
	var ranks []int
	for r := range size {
		if l.Owner(r, o.Procs) != o.Proc {
			continue
		}
		d, err := NewDevice(l, r, o.Backend(r), saver(o, r), o.Files)
		if err != nil {
			return err
		}
		if o.Made != nil {
			o.Made(r, d)
		}
		d.c.Saved, d.c.Placed = o.Saved, o.Placed
		d.c.Stand = func(rank int) RankConfig { return standIn(l, o, rank) }
		if err := d.route(o.Routing.moving(l.Design.MoveEvery), r); err != nil {
			return fmt.Errorf("%s: %w", l.Name(r), err)
		}
		devices, ranks = append(devices, d), append(ranks, r)
		if o.Life == 0 {
			if err := d.Load(o.Fill, d.placed(o.Coord.First-1)...); err != nil {
				return fmt.Errorf("%s: %w", l.Name(r), err)
			}
		}
		dps[l.Ranks[r].Coord.DP] = true
	}
	for i, r := range ranks {
		if o.Sight != nil { //lfvet:kind it is no part of a model
			devices[i].sight = &sight{Sight: o.Sight, rank: r}
		}
	}
	if o.OnRanks != nil {
		o.OnRanks(devices)
	}
	spawn(l, sys, o, obs, devices, ranks, dps)
	if o.OnSystem != nil {
		o.OnSystem(sys)
	}
	if o.Links != nil {
		if o.Coord.Recover {
			o.Links.Lost = func(proc int, epoch uint32, cause error) {
				sys.Send(layout.CoordinatorRef, actors.Message{Kind: actors.Broken, From: layout.RankRef(ranks[0]),
					Epoch: epoch, Text: fmt.Sprintf("between process %d and process %d: %v", o.Proc, proc, cause)})
			}
		}
		joined(l, o, devices, ranks)
		o.Links.Explain, sys.took = sys.explained, o.Links.Took
		o.Links.Serve(sys, layout.CoordinatorRef)
	}
	if o.Links != nil && (o.Links.Slow != nil || o.Proc > 0) {
		o.Links.WatchWays()
	}
	if o.Links != nil && (o.Coord.Recover || o.Links.Tell != nil) && o.Proc > 0 {
		o.Links.Beat()
	}
	if o.Ready != nil {
		if err := o.Ready(); err != nil {
			return err
		}
	}
	if o.Proc > 0 {
		return sys.serve(ranks, o.Orphaned)
	}
	return lead(l, sys, o, obs)
}

// lead starts the coordinator and waits for the end of the run.
func lead(l *layout.Layout, sys *System, o RunOptions, obs *observer) error {
	for r := range l.World() {
		o.Coord.Ranks = append(o.Coord.Ranks, layout.RankRef(r))
		o.Coord.Norms = append(o.Coord.Norms, l.Norms(l.Ranks[r].Params))
	}
	o.Coord.Clip = l.Design.Optim.Clip
	o.Coord.Clips, o.Coord.ClipOf = l.Clips()
	o.Coord.MoveEvery, o.Coord.Move = int64(l.Design.MoveEvery), l.Rebalance
	if o.Coord.Recover {
		o.Coord.Same, o.Coord.Alone = l.Same(), l.Alone()
		spreads(l, &o)
	}
	o.Coord.Observer = layout.ObserverRef
	sys.Spawn(layout.CoordinatorRef, "coordinator", core.NewCoordinator(&o.Coord), committer{o})
	stop, abandon := o.Stop, o.Abandon
	for {
		select {
		case err := <-obs.done:
			return err
		case err := <-o.Orphaned:
			return err
		case x := <-o.Losses:
			for r := range l.World() {
				if l.Owner(r, o.Procs) == x.Proc {
					sys.Send(layout.CoordinatorRef, x.down(r))
				}
			}
		case <-stop:
			sys.Send(layout.CoordinatorRef, actors.Message{Kind: actors.Halt})
			stop = nil
		case <-abandon:
			sys.Send(layout.CoordinatorRef, actors.Message{Kind: actors.Halt, Text: core.HaltNow})
			abandon = nil
		}
	}
}

// spreads has the coordinator spread second copies by the hosts of processes, as far as these are known.
func spreads(l *layout.Layout, o *RunOptions) {
	var on map[int]string
	if o.On != nil {
		on = o.On()
	}
	for r := range l.World() {
		o.Coord.Hosts = append(o.Coord.Hosts, on[l.Owner(r, o.Procs)])
	}
	o.Coord.Spread = func(hosts []string) [][]int {
		by := make([]string, o.Procs)
		for r, host := range hosts {
			by[l.Owner(r, o.Procs)] = host
		}
		return l.Buddies(o.Procs, by)
	}
}

// serve runs a worker process's ranks until the coordinator has halted them all.
func (s *System) serve(ranks []int, orphaned <-chan error) error {
	for _, r := range ranks {
		select {
		case <-s.ended(layout.RankRef(r)):
		case err := <-orphaned:
			return err
		case err := <-s.lost:
			return err
		}
	}
	return nil
}

// saver makes the saver of one rank, or nil where the run writes no checkpoints. The plain nil
// matters: a typed one inside the interface would not compare equal to nil.
func saver(o RunOptions, rank int) Saver {
	if o.Save == nil {
		return nil
	}
	return o.Save(rank)
}

// spawn starts this process's observer, loaders and ranks; the coordinator comes last, when all can answer.
func spawn(l *layout.Layout, sys *System, o RunOptions, obs *observer, devices []*Rank, ranks []int, dps map[int]bool) {
	if o.Proc == 0 {
		sys.Spawn(layout.ObserverRef, "observer", obs, nil)
	}
	for dp := range l.Design.Mesh.Replicas() {
		if !dps[dp] {
			continue
		}
		ll := &core.LoaderLayout{Coordinator: layout.CoordinatorRef, Ahead: max(1, o.Ahead), Last: o.Coord.Last}
		for _, r := range ranks {
			if l.Ranks[r].Coord.DP == dp {
				ll.Ranks = append(ll.Ranks, layout.RankRef(r))
			}
		}
		dev := &Loader{DP: dp, MTP: l.Design.Model.Spec.MTP, Chunks: l.Design.Chunks, Model: l.Design.Model,
			Filled: l.Filled, Rows: l.Design.Rows, Of: l.Design.Mesh.Replicas(), Seed: l.Design.Seed, Deal: l.Dealt(), Read: o.Batches, Seek: o.Seek}
		sys.Spawn(l.LoaderRef(o.Proc, dp), fmt.Sprintf("loader %d.%d", o.Proc, dp), core.NewLoader(ll), dev)
	}
	for i, r := range ranks {
		dev := Device(devices[i])
		if o.WrapDevice != nil {
			dev = o.WrapDevice(r, dev)
		}
		sys.Spawn(layout.RankRef(r), l.Name(r), core.NewRank(l.RankLayout(r, o.Proc)), dev)
	}
}

// joined tells the links which ranks receive by channel, here and in other processes.
func joined(l *layout.Layout, o RunOptions, devices []*Rank, ranks []int) {
	if o.Links == nil || o.Joined == nil {
		return
	}
	here := map[actors.Ref]kernels.Joiner{}
	for i, d := range devices {
		if j, ok := d.c.Backend.(kernels.Joiner); ok && j.Joins() {
			here[layout.RankRef(ranks[i])] = j
		}
	}
	o.Links.Join(here, func(r actors.Ref) bool {
		rank := int(r - layout.FirstRank)
		return rank >= 0 && rank < l.World() && o.Joined(rank)
	})
}
