package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/profiler"
	"github.com/lfactor/lfactor/actors/run/mirror"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// Options say how a run is watched.
type Options struct {
	Progress io.Writer // takes lines for people; nil for none
	Warnings io.Writer // takes what is wrong but ends nothing; nil is Progress
	// Worker is the command line that starts another process of the run, with which the same Train is called
	// again; wanted where plan.procs > 1.
	Worker []string
	// where the processes live, if not on this host; nil starts them with Worker
	Fleet Fleet
	// Capture keeps the messages of the edges whose names match this pattern (rank0-rank1, "coordinator-*")
	// in CaptureDir, as Arrow IPC streams; "" keeps none. A CaptureDir of "" is edges in log.dir.
	Capture, CaptureDir string
	// where a profile is to be written, without the endings of its files; "" for none
	Profile string
	Stage   string                // which of the stages of a job this is, as "2 of 3: …", said when it begins; "" for none
	Step    func(Metrics)         // sees each committed step; nil for none
	Report  func(actors.Message)  // sees all reports of the coordinator; nil for none
	Trace   func(host.TraceEvent) // sees jobs too; nil for none
	Stall   time.Duration         // without a step from which on Progress hears why; 0 is what log.stall says
}

// ErrStopped is Train's error when its context ended, or when no host has room for one of its processes: the
// step under way was committed, and what the run file saves is durable; in the second case, as far as the
// processes that are left hold it.
var ErrStopped = errors.New("stopped on request")

// Run is a training run while it is set up and carried out.
type Run struct {
	cfg    *configs.Config
	io     Options
	given  map[string]string // all settings, before the run adds what follows from data and tokenizer
	tok    *token.Tokenizer
	conf   *token.Config // tokenizer_config.json
	job    *layout.Design
	layout *layout.Layout
	start  start
	noised json.RawMessage // the scheduler of a model of diffusion, as it was when the run began; nil for none
	mirror *mirror.Mirror  // where hosts may share no storage, else nil
	life   int             // how often this process was started before
	asks   bool            // it answers questions of a run, whose files stay as they are
	heir   *heir           // of a process that leads in place of another, else nil
	passes passes          // of train.epochs
	record Record          // of log.dir
	unlock func()          // releases log.dir and checkpoint.dir; nil where they are not held
	data   *data
	report *reporter
	chain  *record.Chain // of the process that leads, else nil
}

// Train carries out a checked configuration to its end. It goes on from the newest durable checkpoint of
// checkpoint.dir, so that the same call repeats what the same command does. A context that ends stops it
// after the step under way, with ErrStopped, as a Fleet does that has no room for a process any more.
func Train(ctx context.Context, cfg *configs.Config, o Options) (err error) {
	r := newRun(cfg, o)
	if rollout.Serves() {
		return r.serves()
	}
	if err := errors.Join(r.comeBack(), r.succeeds()); err != nil {
		return err
	}
	if r.mirror, err = r.newMirror(); err != nil {
		return err
	}
	if r.mirror != nil && cfg.Run.Checkpoint.Best {
		return cfg.Fault("checkpoint.best", "hosts that share no storage keep the newest checkpoints of each other alone",
			"leave it out, or put checkpoint.dir on storage that all hosts share")
	}
	proc := workerProc()
	if proc == 0 {
		for _, n := range cfg.Notices {
			fmt.Fprintln(r.io.Progress, "note:", n)
		}
		if err := r.startable(); err != nil {
			return err
		}
	}
	if err := r.prepareUntil(ctx); err != nil {
		return err
	}
	defer r.closes(&err)
	defer r.start.close()
	defer r.data.close()
	if proc > 0 {
		return r.work(proc)
	}
	if r.unlock == nil {
		if r.unlock, err = lockRun(cfg); err != nil {
			return err
		}
	}
	if saved := r.start.saved; saved != nil && len(r.start.skipped) > 0 {
		if err := checkpoint.Rewind(checkpoint.OS, cfg.Run.Checkpoint.Dir, saved.Step()); err != nil {
			return err
		}
	}
	if r.report, err = newReporter(r); err != nil {
		return err
	}
	defer r.report.close()
	if steps := int64(cfg.Run.Train.Steps); r.start.first > steps && !(steps == 0 && r.start.saved == nil) {
		r.report.say("nothing to do: step %d of %d is durable in %s", r.start.first-1, cfg.Run.Train.Steps,
			cfg.Run.Checkpoint.Dir)
		return r.export()
	}
	if r.report.patience.over.Load() {
		return r.export()
	}
	if err := r.lead(ctx); err != nil {
		return err
	}
	if r.report.lost != nil {
		return r.report.lost
	}
	if ctx.Err() != nil || r.report.early && !r.report.patience.over.Load() {
		return ErrStopped
	}
	return r.export()
}

// LedgerName is the record, in log.dir, of the samples that steps saw.
const LedgerName = "samples.ledger"

// newMirror is nil where the run has one host, or no checkpoints.
func (r *Run) newMirror() (*mirror.Mirror, error) {
	c := &r.cfg.Run
	hosts, ok := r.io.Fleet.(mirror.Depots)
	if !ok || c.Checkpoint.Dir == "" {
		return nil, nil
	}
	log, err := filepath.Abs(c.Log.Dir)
	if err != nil {
		return nil, err
	}
	o := mirror.Options{Hosts: hosts, Dir: c.Checkpoint.Dir, Log: log, Records: []string{LedgerName},
		Keep: c.Checkpoint.Keep, Say: func(text string) { r.report.say("%s", text) }, Progress: r.io.Progress,
		Warnings: r.io.Warnings, Entered: func(step int64, most time.Duration) { r.data.entered(step, most) }}
	if c.Log.JSONL != "" {
		o.Records = append(o.Records, c.Log.JSONL)
	}
	o.Records = append(o.Records, record.ChainName)
	if l := fit.Loss(r.cfg); l != nil && l.Policy != nil {
		o.Records = append(o.Records, rollout.FileName)
	}
	return mirror.New(o)
}

// newRun makes a run of cfg; output that nobody asked for is thrown away.
func newRun(cfg *configs.Config, o Options) *Run {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Warnings == nil {
		o.Warnings = o.Progress
	}
	return &Run{cfg: cfg, io: o, given: cfg.Flat()}
}

// Open lays a run out and opens its data without training. In the folder of a run that is under way or over
// nothing is changed.
func Open(cfg *configs.Config) (*Run, error) {
	r := newRun(cfg, Options{})
	r.asks = true
	if err := r.prepare(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close gives back what Open has opened.
func (r *Run) Close() {
	r.start.close()
	if r.data != nil {
		r.data.close()
	}
}

// Tokenizer is the run's, nil where its data are ids and none is given.
func (r *Run) Tokenizer() *token.Tokenizer { return r.tok }

// Rewind goes back to the data's first step.
func (r *Run) Rewind() error { return r.data.train.Seek(dataset.Position{}) }

// Batches gives replica dp its share of a step's microbatches; steps count from 1, batches of evaluations from -1 down.
func (r *Run) Batches(step int64, dp int) ([]family.Microbatch, error) {
	return r.data.batches(step, dp)
}

// readTokenizer reads the run's tokenizer, and holds it to the model's vocabulary. Data of ids need none.
func (r *Run) readTokenizer() (err error) {
	if r.tok, r.conf, err = setup.RunTokenizer(r.cfg); err != nil || r.tok == nil {
		return err
	}
	return r.cfg.CheckVocab(r.tok.VocabSize())
}

// encoder is the run's tokenizer for texts, nil where data of ids need none.
func (r *Run) encoder() dataset.Encoder {
	if r.tok == nil {
		return nil
	}
	return r.tok
}

// prepare lays the run out: tokenizer, model, plan, where it starts from, and data.
func (r *Run) prepare() (err error) {
	defer func() {
		if err != nil {
			err = r.ended(err, nil)
		}
	}()
	if err = r.readTokenizer(); err != nil {
		return err
	}
	if r.job, err = layout.FromConfig(r.cfg); err != nil {
		return err
	}
	if r.layout, err = layout.New(r.job); err != nil {
		return exit.With(err, exit.Usage)
	}
	r.layout.Budget(machine.MemoryShare(r.layout.World()))
	if err = r.layout.Fits(func() string { return layout.Remedy(r.cfg, roomHere(r.cfg), nil) }); err != nil {
		return err
	}
	if err = r.countSteps(); err != nil {
		return err
	}
	first := workerProc() == 0 && !r.asks && r.heir == nil && r.life == 0
	if first { // before anything of log.dir is read or written; who takes over waits for who led to be gone
		if r.unlock, err = lockRun(r.cfg); err != nil {
			return err
		}
	}
	if err = r.begin(); err != nil {
		return err
	}
	r.record = ReadRecord(r.cfg.Run.Log.Dir)
	if first {
		if err = r.ownFolder(); err != nil {
			return err
		}
	}
	r.data, err = openData(r)
	return err
}

// roomHere is the memory of a rank among so many on this machine, or what the plan says.
func roomHere(c *configs.Config) func(ranks int) int64 {
	return func(ranks int) int64 {
		if b := int64(c.Run.Plan.Memory); b > 0 {
			return b
		}
		return machine.MemoryShare(ranks)
	}
}

// awayDir is the folder for the files that ranks on a processor map for tensors moved out of memory. It is
// "" if the plan moves nothing.
func awayDir(c *configs.Run) (string, error) {
	if !c.Plan.Offload && !c.Plan.OffloadOptimizer && len(c.Plan.OffloadTensors) == 0 {
		return "", nil
	}
	dir := cmp.Or(c.Plan.OffloadDir, c.Log.Dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("plan.offload_dir: %w; name a folder that this user may write to", err)
	}
	return dir, nil
}

// options are the host's options for process proc.
func (r *Run) options(proc int) (host.RunOptions, func(), error) {
	c := r.cfg.Run
	var ranks []int
	for rank := range r.layout.World() {
		if r.layout.Owner(rank, c.Plan.Procs) == proc {
			ranks = append(ranks, rank)
		}
	}
	backend, closeAll, err := backends(r, ranks)
	if err != nil {
		return host.RunOptions{}, nil, err
	}
	o := host.RunOptions{Coord: layout.Coordination(r.cfg), Backend: backend, Fill: r.start.fill,
		Batches: r.data.batches, Members: r.data.rollouts.Members, Leave: r.data.leave, OnRanks: r.data.sees,
		Proc: proc, Procs: c.Plan.Procs, Life: r.life, Saved: r.saved, Seek: r.data.seek,
		On: r.on(), Routing: r.routing(), Sight: r.sight(), Joined: func(rank int) bool { return joins(r.device(rank)) }}
	if o.Files, err = awayDir(&c); err == nil {
		err = r.capture(&o)
	}
	if err != nil {
		closeAll()
		return host.RunOptions{}, nil, err
	}
	o.Coord.Recover, o.Coord.Restarts, o.Coord.Place = c.Plan.Procs > 1 && c.Train.Restarts > 0,
		c.Train.Restarts, r.data.place
	o.Coord.Aside, o.Coord.Window = r.data.aside, actors.Duration(c.Train.RestartWindow*float64(actors.Second))
	if (c.Train.Patience > 0 || c.Checkpoint.Best) && r.report != nil {
		o.Coord.Enough = r.report.patience.enough
	}
	o.Coord.Keep, o.Coord.SlowFor = c.Train.Keep(), actors.Second
	o.Coord.First, o.Coord.OptimSteps = r.start.first, r.start.updates
	durable := r.start.first - 1
	if r.heir != nil {
		o.Coord.Durable, durable, o.Coord.Unread = r.heir.durable, r.heir.durable, r.heir.unread
	}
	o.Coord.Laid = r.laid(durable)
	o.Placed = func(step int64) []core.Placed { return r.laid(step).At }
	r.start.goesOn(&o.Coord.LossScale)
	if !r.data.validates() {
		o.Coord.EvalEvery = 0
	}
	if dir := c.Checkpoint.Dir; dir != "" {
		o.Save = func(rank int) host.Saver {
			s := &host.CheckpointSaver{FS: checkpoint.OS, Root: dir, Rank: rank}
			if r.mirror != nil {
				s.Host = r.mirror.Host()
			}
			return s
		}
		o.Begin = func(step int64) error {
			r.data.hold(step)
			if r.mirror != nil {
				return r.mirror.Begin(step)
			}
			_, err := checkpoint.Begin(checkpoint.OS, dir, step)
			return err
		}
		o.Commit = r.commit
	}
	return o, closeAll, nil
}

// lead runs process 0: the coordinator and its share of the ranks.
func (r *Run) lead(ctx context.Context) error {
	o, closeAll, err := r.options(0)
	if err != nil {
		return err
	}
	w := newWatch(r)
	defer func() {
		if !w.gaveUp { // else a device may still be at work
			closeAll()
		}
	}()
	o.Stop, o.Abandon, o.Edges = ctx.Done(), w.abandon, r.writeEdges(0)
	defer context.AfterFunc(ctx, func() {
		r.report.say("stopping after this step; a second signal stops at once (lfactor why %s says what "+
			"a stuck run waits for)", r.cfg.Run.Log.Dir)
		r.leaving()
	})()
	o.Observe = func(m actors.Message) { w.seen(m); r.observe(m) }
	looks := r.newEdgeLooks()
	defer looks.end()
	o.OnSystem = func(s *host.System) {
		w.joins(s, &o)
		end, err := s.ServeWhy(r.cfg.Run.Log.Dir, 0)
		if err != nil {
			r.report.say("lfactor why will not answer: %v", err)
			return
		}
		r.report.onClose(end)
		looks.begin(s, &o)
	}
	tr, err := record.NewTracer(r.cfg.Run.Log.Dir, o.Procs)
	if err != nil {
		return err
	}
	defer func() { tr.Close(r.clocks(o.Links)) }()
	o.Trace = tr.See
	if see := r.io.Trace; see != nil {
		o.Trace = func(e host.TraceEvent) { tr.See(e); see(e) }
	}
	r.report.onClose(r.keepRecent(&o, 0))
	r.plant(&o)
	if o.Procs > 1 {
		workers, err := r.spawnWorkers(&o)
		if err != nil {
			return err
		}
		defer workers.close()
		w.end = workers.end
		o.Links.Told, o.Links.Slow = tr.Told, r.slowWay
	}
	if r.io.Profile != "" {
		p := profiler.NewProfiler(profiler.ProfiledSteps)
		p.Device = r.cfg.Run.Device
		p.Attach(r.layout, &o)
		defer func() { r.profiled(p) }()
	}
	return w.run(ctx, func() error { return host.Run(r.layout, o) })
}

// observe takes a report of the coordinator: it is printed first, and then acted on by those parts
// of the run that follow the steps.
func (r *Run) observe(m actors.Message) {
	r.report.observe(m)
	if r.io.Report != nil {
		r.io.Report(m)
	}
	switch {
	case m.Text == core.TopicStep:
		r.chained(m)
		r.data.commit(m.Step)
	case m.Text == core.TopicSlow:
		r.slow(m)
	case m.Text == core.TopicBack:
		r.data.inLedger.Store(m.Step)
		r.chain.Back(m.Step)
		if r.mirror != nil {
			r.mirror.WentBack()
		}
	}
}

// export writes what checkpoint.save_hf asks for from the newest durable checkpoint: a Hugging Face
// directory, or adapters.
func (r *Run) export() error {
	c := r.cfg.Run
	if !c.Checkpoint.SaveHF {
		return nil
	}
	dst := c.Checkpoint.SaveHFPath
	if dst == "" {
		dst = filepath.Join(c.Checkpoint.Dir, "release_hf_weights")
	}
	if c.Checkpoint.Dir == "" {
		return r.cfg.Fault("checkpoint.dir", "exporting needs a checkpoint to export", "set checkpoint.dir")
	}
	saved, _, err := checkpoint.Recover(c.Checkpoint.Dir)
	if best, ok := r.bestSaved(); ok && err == nil {
		loss, _ := r.report.patience.lossAt(best.Step)
		if step, lower := r.report.patience.lowest(); lower < loss {
			r.report.say("! step %d had the lowest loss, %.4f, and is not in %s: a save was under way, so that it was put off, "+
				"or somebody removed it", step, lower, c.Checkpoint.Dir)
		}
		if best.Step != saved.Step() {
			r.report.say("best    step %d, whose evaluation's loss is %.4f, is exported", best.Step, loss)
			_ = saved.Close() // it was only read
			saved, err = checkpoint.Open(best.Path)
		}
	}
	if err != nil {
		return err
	}
	defer saved.Close()
	if c.Checkpoint.SaveHFAverage || optim.Averages(c.Optimizer.Kind) {
		if err := saved.Average(optim.AverageState); err != nil {
			return err
		}
	}
	e := trained.Exporter{Cfg: r.cfg, Model: r.job.Model, Lora: r.job.Lora, Saved: saved, Hf: r.start.hf,
		Side: trained.SideDir(r.cfg)}
	if err := e.Write(dst); err != nil {
		return fmt.Errorf("export to %s: %w", dst, err)
	}
	r.report.say("export  %s", dst)
	for _, note := range e.Notes() {
		r.report.say("note: %s", note)
	}
	return nil
}
