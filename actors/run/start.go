package run

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/features"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// start is where a run starts from.
type start struct {
	first   int64 // the first step
	updates int64 // updates applied before it
	scale   []float64
	usual   core.Usual // what steps before the first were like
	reach   *float64   // of sums in fixed point, nil for what a run begins with
	saved   *checkpoint.Reader
	opened  *checkpoint.Reader // of a checkpoint of a run that it reads, nil for none
	origin  string             // the checkpoint that the run began with, "" for none
	step    int64              // of it, where it is one of checkpoint.dir; 0 for none
	closers []func() error
	fill    family.FillFunc
	base    family.FillFunc  // of the weights that the run began with, whatever it goes on from
	hf      *family.Weights  // of the model's directory, or nil
	from    string           // for the user
	began   string           // the same of base
	skipped []error          // damaged checkpoints that were passed over
	changed []configs.Change // settings that differ from the checkpoint's
	rate    string           // what that means for the learning rate, "" for nothing
}

// stateLen are the numbers that a checkpoint has of the coordinator: updates, loss scale, good steps
// and overflows left.
const stateLen = 4

// filedLen are those that a commit has of it: behind the others what steps were like, usualLen numbers, and how far
// sums in fixed point reach.
const (
	usualLen = 3
	filedLen = stateLen + usualLen + 1
)

// goesOn puts what a checkpoint says of the steps before into what a run begins with.
func (s *start) goesOn(l *core.LossScale) {
	if s.scale != nil {
		l.Scale, l.Good, l.Left = s.scale[0], int(s.scale[1]), int(s.scale[2])
	}
	if l.Usual = s.usual; s.reach != nil {
		l.Reach = *s.reach
	}
}

// close closes the files that the run starts from.
func (s *start) close() {
	for _, f := range s.closers {
		_ = f() // read-only files
	}
}

// begin finds the run's own newest checkpoint, else the weights to start from, else draws them.
func (r *Run) begin() error {
	var err error
	if r.noised, err = r.scheduler(); err != nil {
		return err
	}
	r.start.first = max(1, r.start.first) // a process that is started again knows it
	if err := r.weights(); err != nil {
		return err
	}
	r.start.fill = family.FillAdapters(r.job.Model, r.job.Lora, r.start.fill)
	r.start.base, r.start.began = r.start.fill, r.start.from
	switch {
	case r.heir != nil:
		return r.inherit()
	case r.life > 0: // it takes a state that it is told
		return nil
	}
	if r.mirror != nil && workerProc() > 0 { // it begins as the process that leads has
		if r.start.step == 0 {
			return r.load()
		}
		saved, err := r.mirror.Open(r.start.step)
		if err != nil {
			return err
		}
		return r.resume(saved, true)
	}
	return r.newest()
}

// newest goes on from the newest durable state, or begins.
func (r *Run) newest() error {
	c := r.cfg.Run
	if c.Checkpoint.Dir != "" {
		saved, skipped, err := r.recover()
		r.start.skipped = skipped
		switch {
		case err == nil:
			return r.resume(saved, true)
		case !errors.Is(err, checkpoint.ErrNone):
			return err
		case len(skipped) > 0:
			return fmt.Errorf("%s has checkpoints, but none is whole: %w", c.Checkpoint.Dir, errors.Join(skipped...))
		}
		if saved, err := r.unnamed(); saved != nil || err != nil {
			if err != nil {
				return err
			}
			return r.resume(saved, true)
		}
	}
	return r.load()
}

// recover opens the newest whole checkpoint of checkpoint.dir, which hosts of a cluster may have together.
func (r *Run) recover() (saved *checkpoint.Reader, skipped []error, err error) {
	if r.mirror != nil {
		return r.mirror.Recover()
	}
	return checkpoint.Recover(r.cfg.Run.Checkpoint.Dir)
}

// load goes on from the checkpoint that checkpoint.load names, if it names one of lfactor's own.
func (r *Run) load() error {
	c := r.cfg.Run
	if c.Checkpoint.Load != "" && !machine.Exists(filepath.Join(c.Checkpoint.Load, "config.json")) {
		saved, _, err := checkpoint.Recover(c.Checkpoint.Load)
		if errors.Is(err, checkpoint.ErrNone) && c.Checkpoint.Load == c.Checkpoint.Dir {
			return nil // as in Megatron: --load and --save name one directory, which has nothing yet
		}
		if err != nil {
			return err
		}
		return r.resume(saved, c.Checkpoint.LoadRNG && c.Checkpoint.LoadOptimizer)
	}
	return nil
}

// unnamed is the newest whole checkpoint of a directory without latest: its first save was interrupted
// between the two, or somebody removed the file. The checkpoint is whole all the same.
func (r *Run) unnamed() (*checkpoint.Reader, error) {
	dir := r.cfg.Run.Checkpoint.Dir
	entries, err := checkpoint.List(dir)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	var faults []error
	for _, e := range entries {
		saved, err := checkpoint.Open(e.Path)
		if err == nil {
			if err = saved.Verify(); err == nil {
				r.start.skipped = append(faults,
					fmt.Errorf("%s names no checkpoint; going on from %s, the newest that is whole",
						filepath.Join(dir, "latest"), e.Path))
				return saved, nil
			}
			_ = saved.Close() // its damage is the error to report
		}
		faults = append(faults, err)
	}
	return nil, fmt.Errorf("%s has checkpoints, but none is whole: %w", dir, errors.Join(faults...))
}

// weights sets the source of initial parameters: a Hugging Face directory, or random values; adapters are always drawn.
func (r *Run) weights() error {
	c, m := r.cfg.Run, r.job.Model
	seed := uint64(c.Train.Seed)
	random := func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
		if kind == "param" {
			m.Init(seed, p, g, dst)
		}
		return kind == "param", nil
	}
	if err := firstFault(r.cfg, checkWeights); err != nil {
		return err
	}
	dir := weightsDir(&c)
	if c.Model.Init == "random" || c.Model.Init == "auto" && (dir == "" || !hasWeights(dir)) {
		r.start.fill, r.start.from = random, fmt.Sprintf("random weights, seed %d", seed)
		return r.parts()
	}
	src, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return err
	}
	r.start.closers = append(r.start.closers, src.Close)
	w, err := m.OpenWeights(src, dir)
	if len(m.Parts) > 0 { // the others have files of their own
		w, err = m.OpenPart(family.Foundation, src, dir)
	}
	if err != nil {
		return err
	}
	if key, err := w.Relearns(); err != nil || key != "" {
		return cmp.Or(err, error(r.cfg.Fault("model."+key, fmt.Sprintf("%s has learnt what these steps would learn anew", dir),
			fmt.Sprintf("set model.overrides.%s=0", key))))
	}
	r.start.hf, r.start.from = w, dir
	r.start.fill = func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
		if strings.HasPrefix(kind, checkpoint.PackedPrefix) {
			return w.ReadPacked(p, g, dst)
		}
		if kind != "param" {
			return false, nil
		}
		if ok, err := w.Read(p, g, dst); ok || err != nil {
			warnNaN(r.io.Warnings, dir, p.Name, dst)
			return ok, err
		}
		return random(kind, p, g, dst)
	}
	return r.parts()
}

// startPart is a component that begins with the weights of a folder of its own, which a key names.
type startPart struct{ key, dir, component string }

// open opens the part's weights: a network that compares pictures comes in files of PyTorch as well.
func (p startPart) open() (checkpoint.Source, error) {
	if p.component == fit.Perceptual {
		return features.Open(p.dir)
	}
	return checkpoint.OpenFolder(p.dir)
}

// parts lets components of a composed model begin with the weights of checkpoints of their own.
func (r *Run) parts() error {
	c := &r.cfg.Run.Model
	all := []startPart{{"model.encoder_path", c.Encoder, family.Encoder}, {"model.decoder_path", c.Decoder,
		family.Foundation}}
	for _, p := range r.job.Model.Parts {
		if key, path := fit.PartFiles(r.cfg, p.Component); p.Component == fit.Perceptual || hasWeights(path) {
			all = append(all, startPart{key, path, p.Component})
		}
	}
	for _, part := range all {
		if part.dir == "" {
			continue
		}
		src, err := part.open()
		if err != nil {
			return err
		}
		r.start.closers = append(r.start.closers, src.Close)
		w, err := r.job.Model.OpenPart(part.component, src, part.dir)
		if err != nil {
			return r.cfg.Fault(part.key, err.Error(), "")
		}
		before := r.start.fill
		r.start.fill = func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			ok, err := before(kind, p, g, dst)
			if kind != "param" || err != nil {
				return ok, err
			}
			mine, err := w.Read(p, g, dst)
			if mine {
				warnNaN(r.io.Warnings, part.dir, p.Name, dst)
			}
			return ok || mine, err
		}
		r.start.from += fmt.Sprintf("; %s of %s", part.component, part.dir)
	}
	return nil
}

// warnNaN says that loaded values are no numbers: training from them gives nothing but NaN.
func warnNaN(w io.Writer, dir, name string, v []float32) {
	for _, x := range v {
		if x != x {
			fmt.Fprintf(w, "warning: %s: %s has NaN values\n", dir, name)
			return
		}
	}
}

// hasWeights tells whether a folder holds a model's weights in the form of Hugging Face. An adapter
// alone does not count, because training cannot start from it.
func hasWeights(dir string) bool {
	if machine.Exists(filepath.Join(dir, "model.safetensors.index.json")) || checkpoint.Linked(dir) != "" {
		return true
	}
	entries, _ := os.ReadDir(dir) // a folder that cannot be read has none
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".safetensors") && !strings.HasPrefix(e.Name(), "adapter_") {
			return true
		}
	}
	return false
}

// resume goes on from an own checkpoint; whole also takes its step and its place in the data.
func (r *Run) resume(saved *checkpoint.Reader, whole bool) error {
	r.start.closers, r.start.opened = append(r.start.closers, saved.Close), saved
	var before map[string]string
	if err := saved.Section("config", &before); err != nil {
		return err
	}
	if err := r.sameScheduler(saved); err != nil {
		return err
	}
	if converted(saved) { // its model is found by shapes, wherever the folder of the model lies
		delete(before, "model.path")
		delete(before, "model.init")
	}
	if whole {
		r.cfg.Run.Data.Date = cmp.Or(r.cfg.Run.Data.Date, strings.Trim(before["data.template_date"], `"`))
		changed, err := r.cfg.Resume(before)
		if err != nil {
			return err
		}
		r.start.changed = changed
		var state []float64
		if err := saved.Section("state", &state); err != nil {
			return err
		}
		if len(state) != stateLen {
			return &checkpoint.Error{File: saved.Path(), Fault: checkpoint.Malformed,
				Why: fmt.Sprintf("section state has %d values, want %d", len(state), stateLen)}
		}
		var usual []float64
		if saved.Section(usualSection, &usual) == nil &&
			len(usual) == usualLen { // others had no limits
			r.start.usual = core.Usual{Norm: usual[0], Loss: usual[1], Count: int64(usual[2])}
		}
		if reach := new(float64); saved.Section(reachSection, reach) == nil { // others do not sum in fixed point
			r.start.reach = reach
		}
		r.start.first, r.start.updates, r.start.scale, r.start.saved = saved.Step()+1, int64(state[0]), state[1:], saved
		if converted(saved) {
			r.start.scale = nil // none was learnt here
		}
	}
	if len(r.start.changed) > 0 {
		r.start.rate = r.otherRate(saved)
	}
	r.start.origin = saved.Path()
	c := r.cfg.Run.Checkpoint
	r.start.fill = family.FromCheckpoint(saved, c.LoadOptimizer && moments(saved))
	r.start.from = fmt.Sprintf("step %d of %s, verified", saved.Step(), saved.Path())
	if c.Dir != "" && filepath.Dir(saved.Path()) == filepath.Clean(c.Dir) {
		// The run's own state: without its moments each restart would change what the run computes.
		r.start.step = saved.Step()
		r.start.fill = family.FromCheckpoint(saved, moments(saved))
		if !c.LoadOptimizer || !c.LoadRNG {
			r.start.from += ", whole: load_optimizer and load_rng are for checkpoint.load alone"
		}
	}
	return nil
}

// converted reports whether a checkpoint is no run's, but was converted from another form.
func converted(saved *checkpoint.Reader) bool {
	var c trained.Converted
	return saved.Section(trained.ConvertedSection, &c) == nil
}

// moments reports whether a checkpoint is to have what the optimizer keeps: all but a converted one that
// has only weights.
func moments(saved *checkpoint.Reader) bool {
	return !converted(saved) || slices.Contains(saved.Kinds(), checkpoint.ExpAvg)
}

// average lets a run have the average of weights that its checkpoint keeps instead of the last ones.
func (s *start) average(cfg *configs.Config) error {
	if s.opened == nil {
		return cfg.Fault("checkpoint.dir",
			"there is no checkpoint of a run, which could have an average of its weights",
			"train with optimizer.ema first, or leave --ema out")
	}
	if err := s.opened.Average(optim.AverageState); err != nil {
		return err
	}
	s.fill = family.FromCheckpoint(s.opened, false)
	s.from += ", average of weights"
	return nil
}

// otherRate says how the learning rate of the next step differs from what the checkpoint's configuration would give;
// "" if it does not. A run that is extended by train.steps decays over more steps, so that its rate jumps.
func (r *Run) otherRate(saved *checkpoint.Reader) string {
	old, err := trained.SavedConfig(saved)
	if err != nil {
		return "" // of another version; the run itself does not need it
	}
	was, is := layout.Rate(old), layout.Rate(r.cfg)
	a, b := was.At(r.start.first), is.At(r.start.first)
	if a == b {
		return ""
	}
	return fmt.Sprintf("step %d takes a learning rate of %.3g; the checkpoint's configuration would "+
		"take %.3g (%s until step %d, now %s until step %d); schedule.decay_steps fixes it",
		r.start.first, b, a, was.Style, was.Decay, is.Style, is.Decay)
}
