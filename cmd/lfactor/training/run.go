// Package training is a training run from a checked configuration to its end.
package training

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/measure"
	"github.com/lfactor/lfactor/cmd/lfactor/model"
	"github.com/lfactor/lfactor/cmd/lfactor/process"
	"github.com/lfactor/lfactor/cmd/lfactor/setup"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// IO is how a run is watched.
type IO struct {
	Args  []string // of the command, for worker processes
	Quiet bool
	// profile is where a profile is to be written, without the endings of its files; "" for none.
	Profile string
	Step    func(m actors.Message) // sees reports too; nil for none
	Trace   func(host.TraceEvent)  // sees jobs too; nil for none
}

// lockRun holds the directories that a run writes.
func lockRun(cfg *configs.Config) (func(), error) {
	var held []func()
	release := func() {
		for _, f := range held {
			f()
		}
	}
	dirs := map[string]string{"log.dir": cfg.Run.Log.Dir, "checkpoint.dir": cfg.Run.Checkpoint.Dir}
	for _, key := range []string{"checkpoint.dir", "log.dir"} {
		if dirs[key] == "" || key == "log.dir" && dirs[key] == dirs["checkpoint.dir"] {
			continue
		}
		f, err := process.LockDir(key, dirs[key])
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, f)
	}
	return release, nil
}

// Run is a training run while it is set up and carried out.
type Run struct {
	Cfg    *configs.Config
	io     IO
	Tok    *token.Tokenizer
	Conf   *token.Config // tokenizer_config.json
	Job    *layout.Job
	Layout *layout.Layout
	Start  start
	Data   *Data
	report *reporter
}

// Train carries out a checked configuration to its end, a request to stop, or an error.
func Train(ctx context.Context, cfg *configs.Config, io IO) error {
	r := &Run{Cfg: cfg, io: io}
	proc := workerProc()
	if proc == 0 && !io.Quiet {
		for _, n := range cfg.Notices {
			fmt.Fprintln(os.Stderr, "note:", n)
		}
	}
	if err := r.Prepare(); err != nil {
		return err
	}
	defer r.Start.Close()
	defer r.Data.Close()
	if proc > 0 {
		return r.work(proc)
	}
	unlock, err := lockRun(cfg)
	if err != nil {
		return err
	}
	defer unlock()
	if r.report, err = newReporter(r); err != nil {
		return err
	}
	defer r.report.close()
	if steps := int64(cfg.Run.Train.Steps); r.Start.first > steps && !(steps == 0 && r.Start.saved == nil) {
		r.report.say("nothing to do: step %d of %d is durable in %s", r.Start.first-1, cfg.Run.Train.Steps, cfg.Run.Checkpoint.Dir)
		return r.export()
	}
	if err := r.lead(ctx); err != nil {
		return err
	}
	if r.report.lost != nil {
		return r.report.lost
	}
	if ctx.Err() != nil {
		return cli.Coded(errors.New(""), cli.StopCode())
	}
	return r.export()
}

// Prepare lays the run out: tokenizer, model, plan, where it starts from, and data.
func (r *Run) Prepare() error {
	var err error
	if r.Tok, r.Conf, err = setup.Tokenizer(r.Cfg); err != nil {
		return err
	}
	if err = r.Cfg.CheckVocab(r.Tok.VocabSize()); err != nil {
		return cli.Coded(err, cli.ExitCorrupt)
	}
	if r.Job, err = setup.Job(r.Cfg); err != nil {
		return err
	}
	if r.Layout, err = layout.Plan(r.Job); err != nil {
		return cli.Coded(err, cli.ExitUsage)
	}
	if err = setup.Fits(r.Layout); err != nil {
		return err
	}
	if err = r.patterns(); err != nil {
		return err
	}
	if err = r.begin(); err != nil {
		return err
	}
	r.Data, err = openData(r)
	return err
}

// patterns holds the patterns of lora and freeze to the model: one that matches nothing is a mistake.
func (r *Run) patterns() error {
	c := r.Cfg.Run
	linear, trained := map[string]bool{}, false
	all := r.Job.Model.Params(r.Job.Lora)
	for _, p := range all {
		linear[strings.TrimSuffix(p.Name, ".weight")] = true
		trained = trained || !r.Job.Frozen(p.Name)
	}
	check := func(key string, patterns []string, names func(yield func(string) bool)) error {
		for _, pat := range patterns {
			hit := false
			names(func(n string) bool { hit = block.Match(pat, n); return !hit })
			if !hit {
				return r.Cfg.Fault(key, fmt.Sprintf("%q matches nothing in the model", pat), "name its layers as in *.q_proj")
			}
		}
		return nil
	}
	if c.LoRA.Rank > 0 {
		if err := check("lora.targets", c.LoRA.Targets, maps.Keys(linear)); err != nil {
			return err
		}
	}
	if err := check("freeze", c.Freeze, func(yield func(string) bool) {
		for _, p := range all {
			if !yield(p.Name) {
				return
			}
		}
	}); err != nil {
		return err
	}
	if !trained {
		return r.Cfg.Fault("freeze", "nothing is left to train", "")
	}
	return nil
}

// Options are the host's options for process proc.
func (r *Run) Options(proc int) (host.RunOptions, func(), error) {
	c := r.Cfg.Run
	backend, closeAll, err := setup.Backends(r.Cfg)
	if err != nil {
		return host.RunOptions{}, nil, err
	}
	o := host.RunOptions{Coord: setup.Coordination(r.Cfg), Backend: backend, Fill: r.Start.fill, Batches: r.Data.Batches, Proc: proc, Procs: c.Plan.Procs}
	o.Coord.First, o.Coord.OptimSteps = r.Start.first, r.Start.updates
	if r.Start.scale != nil {
		o.Coord.LossScale.Scale, o.Coord.LossScale.Good, o.Coord.LossScale.Left = r.Start.scale[0], int(r.Start.scale[1]), int(r.Start.scale[2])
	}
	if !r.Data.Validates() {
		o.Coord.EvalEvery = 0
	}
	if dir := c.Checkpoint.Dir; dir != "" {
		o.Save = func(rank int) host.Saver {
			return &host.CheckpointSaver{FS: checkpoint.OS, Root: dir, Rank: rank, All: r.Layout.Ranks[rank].All}
		}
		o.Begin = func(step int64) error {
			_, err := checkpoint.Begin(checkpoint.OS, dir, step)
			return err
		}
		o.Commit = r.commit
	}
	return o, closeAll, nil
}

// lead runs process 0: the coordinator and its share of the ranks.
func (r *Run) lead(ctx context.Context) error {
	o, closeAll, err := r.Options(0)
	if err != nil {
		return err
	}
	defer closeAll()
	o.Stop = ctx.Done()
	defer context.AfterFunc(ctx, func() {
		r.report.say("stopping after this step; a second signal stops at once (lfactor why %s says what a stuck run waits for)", r.Cfg.Run.Log.Dir)
	})()
	o.Observe = r.observe
	o.OnSystem = func(s *host.System) {
		end, err := s.ServeWhy(r.Cfg.Run.Log.Dir, 0)
		if err != nil {
			r.report.say("lfactor why will not answer: %v", err)
			return
		}
		r.report.onClose(end)
	}
	tr, err := newTracer(r.Cfg.Run.Log.Dir)
	if err != nil {
		return err
	}
	defer tr.close()
	o.Trace = tr.see
	if see := r.io.Trace; see != nil {
		o.Trace = func(e host.TraceEvent) { tr.see(e); see(e) }
	}
	r.plant(&o)
	if o.Procs > 1 {
		workers, err := r.spawnWorkers(&o)
		if err != nil {
			return err
		}
		defer workers.close()
	}
	if r.io.Profile != "" {
		p := measure.NewProfiler(measure.ProfiledSteps)
		p.Attach(r.Layout, &o)
		defer func() { r.profiled(p) }()
	}
	return host.Run(r.Layout, o)
}

// profiled writes a run's profile; that it cannot be written is no failure of the run.
func (r *Run) profiled(p *measure.Profiler) {
	x, ok := p.Report()
	if !ok {
		r.report.say("! no profile: it wants two steps, of which the first warms up")
		return
	}
	if err := p.Write(r.io.Profile, x); err != nil {
		r.report.say("! no profile: %v", err)
		return
	}
	if !r.io.Quiet {
		x.PrintPhases(os.Stderr)
		x.PrintKernels(os.Stderr, 12)
	}
	r.report.say("profile %s.txt, .json and .svg", r.io.Profile)
}

func (r *Run) observe(m actors.Message) {
	r.report.observe(m)
	if r.io.Step != nil {
		r.io.Step(m)
	}
	if m.Text == core.TopicStep {
		r.Data.commit(m.Step)
	}
}

// commit makes the checkpoint of a step durable, then removes what retention lets go.
func (r *Run) commit(step int64, parts []string, state []float64) error {
	c := r.Cfg.Run.Checkpoint
	sections := map[string]any{"config": r.Cfg.Flat(), "state": state, "data": r.Data.position(step), "params": r.Layout.Order}
	if err := host.CommitShards(checkpoint.OS, c.Dir, step, parts, sections); err != nil {
		return err
	}
	_, err := checkpoint.Prune(checkpoint.OS, c.Dir, c.Keep)
	return err
}

// export writes what checkpoint.save_hf asks for from the newest durable checkpoint: a Hugging Face directory, or adapters.
func (r *Run) export() error {
	c := r.Cfg.Run
	if !c.Checkpoint.SaveHF {
		return nil
	}
	dst := c.Checkpoint.SaveHFPath
	if dst == "" {
		dst = filepath.Join(c.Checkpoint.Dir, "release_hf_weights")
	}
	if c.Checkpoint.Dir == "" {
		return r.Cfg.Fault("checkpoint.dir", "exporting needs a checkpoint to export", "set checkpoint.dir")
	}
	saved, _, err := checkpoint.Recover(c.Checkpoint.Dir)
	if err != nil {
		return err
	}
	defer saved.Close()
	e := model.Exporter{Cfg: r.Cfg, Model: r.Job.Model, Lora: r.Job.Lora, Saved: saved, Hf: r.Start.hf, Side: model.SideDir(r.Cfg)}
	if err := e.Write(dst); err != nil {
		return fmt.Errorf("export to %s: %w", dst, err)
	}
	r.report.say("export  %s", dst)
	return nil
}
