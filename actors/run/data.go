package run

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/dataset"
	_ "github.com/lfactor/lfactor/dataset/format"
	_ "github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
)

// registers the formats

// data is a run's sample log: training and validation loaders, the ledger and the quarantine.
type data struct {
	r        *Run
	mu       sync.Mutex // of what was made
	reading  sync.Mutex // of the loaders
	left     chan struct{}
	leaving  sync.Once
	stuck    atomic.Bool
	began    dataset.Position // of the first step
	train    dataset.Batches
	valid    []*dataset.Loader // by validation set
	sources  []dataset.Source
	named    []int32        // of each of training, the number of its name among those of data.paths, or nil
	ramps    []dataset.Ramp // of each of training, where weights change
	bad      *dataset.Quarantine
	ledger   *dataset.Ledger
	inLedger atomic.Int64      // the newest step that is entered
	kind     dataset.Kind      // of what is read
	images   imagery           // of a model that takes images, or nil
	shown    *evalPrompts      // answers to train.eval_prompts, or nil
	answers  *answers          // of a loss over answers, or nil
	rollouts *rollout.Source   // of a loss of a policy, or nil
	teacher  *sample.Generator // of a loss of logits, or nil
	recent   map[int64]*made   // steps made lately: every replica's loader asks for its share
	marks    marks
	jumps    map[int64]dataset.Position // where steps go on behind samples that are left aside
	sought   string                     // the place that was gone back to last
	backs    int                        // how often a place was written down to go back to
	balance  *balance                   // nil without data.balance
	told     bool                       // the user knows that the ledger is not written
	reached  bool                       // what another leader has seen of the data is read
	entering sync.Mutex                 // of the ledger
	leads    bool                       // this process writes the ledger
	awaits   int64                      // the generation that the run's folder says is waited for, from 1 on
	work     map[int64]float64          // floating-point operations of recent steps
	unlearnt int64                      // steps without a token that is learnt, since the last that had one
}

// imagery turns the media of batches into what a model takes.
type imagery interface {
	// Prepare is the loader's.
	Prepare(m *dataset.Media, n int) (v any, bytes int64, err error)
	// Fill puts what was prepared of a batch into its microbatch.
	Fill(mb *family.Microbatch, b *dataset.Batch) error
}

// newData makes the data side of a run without opening anything; open does that.
func newData(r *Run) *data {
	return &data{r: r, left: make(chan struct{}), recent: map[int64]*made{}, work: map[int64]float64{},
		marks: marks{recent: map[int64]dataset.Position{}, saved: map[int64]dataset.Position{}}}
}

// idleOf are the keys that data of a form does not read, which is known when it is opened.
var idleOf = map[dataset.Form][]string{dataset.InText: ofTalks, dataset.InTokens: append(ofTalks, "data.text_key"),
	dataset.InMessages: {"data.text_key", "data.sample_type"}, dataset.InParts: {"data.text_key"}}

var ofTalks = []string{"data.messages", "data.message_key", "data.train_on_prompt", "data.last_turn_only",
	"data.sample_type", "data.drop_long"}

// openData opens what data.* names; a resumed run goes on at its checkpoint's position.
func openData(r *Run) (*data, error) {
	r.firstDay()
	d := newData(r)
	if err := d.open(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// open opens the sources, the loaders and the ledger, and moves all to the step at which the run begins.
func (d *data) open() error {
	c := d.r.cfg.Run
	if err := errors.Join(d.openKind(), d.openAnswers(), d.openShown()); err != nil {
		return err
	}
	train, valid, err := d.openSources()
	if err != nil {
		return err
	}
	if err := d.golds(train); err != nil {
		return err
	}
	if c.Data.Balance {
		d.balance = newBalance(c.Data.Cost, d.r.cfg.Model.Hidden, c.Plan.DP)
		d.balance.both = d.images != nil
	}
	lead, err := d.quarantine()
	if err != nil {
		return err
	}
	d.leads = lead
	conf, err := d.config()
	if err != nil {
		return err
	}
	conf.Sources, conf.Ramps = train, d.ramps
	conf.OrderWindow = orderWindow(train, c.Data.ShardMix)
	if err = d.openTrain(conf); err != nil {
		return d.r.cfg.Fault("data.paths", err.Error(), "")
	}
	for _, set := range valid {
		conf.Ramps, conf.Sources, conf.OrderWindow, conf.HoldBytes = nil, set, 0, 32<<20 // it lies idle between evaluations
		conf.Passes, conf.KeepLast = 0, false
		l, err := dataset.OpenLoader(conf, d.r.encoder())
		if err != nil {
			return d.r.cfg.Fault("data.valid", err.Error(), "")
		}
		d.valid = append(d.valid, l)
		if d.r.cfg.Run.Train.Evaluates() { // a set that gives nothing is told now, and not at the first evaluation
			if _, err := l.Step(0); err != nil {
				return fmt.Errorf("data.valid: %w", err)
			}
		}
	}
	if err := d.resume(); err != nil {
		return err
	}
	d.began = d.train.Position()
	if !lead {
		return nil
	}
	for _, n := range d.r.cfg.Idle(fmt.Sprintf("the data is %s", d.kind), idleOf[d.kind.Form()]...) {
		fmt.Fprintln(d.r.io.Progress, "note:", n)
	}
	d.ledger, err = dataset.OpenLedger(filepath.Join(c.Log.Dir, LedgerName))
	if err != nil {
		return err
	}
	// A process that took over goes on from the durable step; what the ledger has after it is run again.
	if h := d.r.heir; h != nil {
		d.marks.saved[h.durable], d.marks.durable = d.began, h.durable
		return d.ledger.Truncate(h.durable + 1)
	}
	return d.ledger.Truncate(d.r.start.first)
}

// resume seeks to the position that the checkpoint kept.
func (d *data) resume() error {
	saved := d.r.start.saved
	if saved == nil {
		return nil
	}
	var p dataset.Position
	if converted(saved) {
		return d.fromBeginning(saved)
	}
	if err := saved.Section("data", &p); err != nil {
		return err
	}
	var other *dataset.OrderError
	if err := d.train.Seek(p); errors.As(err, &other) {
		return d.r.cfg.Fault("data.paths", "the data is not that of the checkpoint: "+other.Error(), "")
	} else if err != nil {
		return err
	}
	return nil
}

// config is what both loaders share.
func (d *data) config() (dataset.LoaderConfig, error) {
	c := d.r.cfg.Run
	seed := c.Data.Seed
	if seed < 0 {
		seed = c.Train.Seed
	}
	eod, err := endToken(d.r.cfg, d.r.tok, d.r.conf)
	if err != nil {
		return dataset.LoaderConfig{}, err
	}
	conf := dataset.LoaderConfig{Mode: dataset.Mode(c.Train.Phase), SeqLen: c.Data.SeqLen,
		EOD: eod, Pad: eod, Separate: c.Data.Packing, MaskEOD: c.Data.EODMask, Seed: uint64(seed),
		MicroBatch: c.Train.MicroBatch, GlobalBatch: c.Train.GlobalBatch, CacheBytes: 256 << 20,
		Budget: dataset.Budget{Count: int64(c.Data.Quarantine)}, Quarantine: d.bad}
	conf.Packing, conf.MediaMax, conf.Readers, conf.DropLong = dataset.Packing(c.Data.Pack),
		c.Data.ImagesMax, c.Data.Readers, c.Data.DropLong
	if !c.Data.Packing {
		conf.Packing = dataset.PackNone
	}
	conf.Passes, conf.KeepLast = int64(math.Ceil(c.Train.Epochs)), c.Train.Epochs > 0 && !c.Data.DropLast
	conf.Sequential, conf.Vocab = !c.Data.Shuffle, d.r.cfg.Model.Vocab
	if feed := feeds[d.kind]; feed != nil {
		conf.Mode = dataset.ModeSFT
		err = feed(d, &conf)
	}
	return conf, err
}

// orderWindow is how many documents some files of a data set have, on average; 0 means all.
func orderWindow(sources []dataset.Weighted, files int) int64 {
	if files == 0 {
		return 0
	}
	all, documents := 0, int64(0)
	for _, s := range sources {
		all += len(dataset.Sources(s.Source))
		documents += s.Source.Len()
	}
	if all <= files {
		return 0
	}
	return max(1, documents*int64(files)/int64(all))
}

// validates reports whether there is validation data.
func (d *data) validates() bool { return len(d.valid) > 0 }

// recentMax bounds the steps that are kept for replicas that lag and for checkpoints.
const recentMax = 32

// step makes a step's data once for all replicas. Training steps count from 1, evaluation batches from -1
// down. The caller holds d.reading.
func (d *data) step(step int64) (*made, error) {
	d.mu.Lock()
	have := d.recent[step]
	if step < 0 { // one evaluation's batches are asked for one after the other
		delete(d.recent, step+1)
	}
	d.mu.Unlock()
	if have != nil && !have.old {
		return have, nil
	}
	m, err := d.again(step)
	if m == nil && err == nil {
		err = d.jump(step)
	}
	if m == nil && err == nil {
		m, err = d.read(step)
	}
	if err == io.EOF {
		return nil, fmt.Errorf("the data is used up behind step %d: media that cannot be read, or steps taken again with "+
			"other samples, leave fewer than were counted; set train.steps to %d to end there", step-1, step-1)
	}
	if err == nil {
		err = d.learns(step, m)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recent[step] = m
	if step > 0 {
		d.marks.enter(step, m.end)
	}
	if step > recentMax {
		delete(d.recent, step-recentMax)
	}
	return m, nil
}

// errLeft says that nobody waits any more for data that does not come.
var errLeft = rollout.ErrLeft

// read has a loader make a step, until leave is called.
func (d *data) read(step int64) (*made, error) {
	type result struct {
		m   *made
		err error
	}
	select {
	case <-d.left: // a read that nobody waits for any more may still use the loader
		return nil, errLeft
	default:
	}
	done := make(chan result, 1)
	go func() {
		l, at := d.train, step-1 // of training
		if d.rollouts != nil {
			at = d.rollouts.Plan.Round(step)
		}
		if step < 0 {
			each := int64(max(1, d.r.cfg.Run.Train.EvalSteps))
			set := d.valid[(-step-1)/each]
			l, at = set, (-step-1)%each
			if err := evaluates(set, at); err != nil {
				done <- result{err: err}
				return
			}
		}
		start := l.Position()
		bs, err := l.Step(at)
		done <- result{&made{batches: bs, start: start, end: l.Position()}, err}
	}()
	select {
	case r := <-done:
		return r.m, r.err
	case <-d.left:
		d.stuck.Store(true)
		return nil, errLeft
	}
}

// leave lets go of whoever waits for data.
func (d *data) leave() { d.leaving.Do(func() { close(d.left) }) }

// batches gives replica dp its share of a step: microbatch k of the replica is microbatch k·size+dp of the step.
func (d *data) batches(step int64, dp int) ([]family.Microbatch, error) {
	if d.rollouts != nil { // whoever reads ahead must not keep others from the step under way
		if err := d.rollouts.Await(step); err != nil {
			return nil, err
		}
	}
	d.reading.Lock()
	defer d.reading.Unlock()
	m, err := d.step(step)
	if err == nil && step == -1 && d.shown != nil {
		err = d.shown.draw(d.r, dp)
	}
	if err != nil {
		return nil, err
	}
	c := d.r.cfg.Run
	if d.rollouts != nil {
		return d.rollouts.Batches(step, dp)
	}
	var out []family.Microbatch
	shares := d.shares(m.batches)
	weights := dataset.Weighting{Weight: dataset.LossWeight(c.Train.LossWeight),
		Mean: dataset.LossMean(c.Train.LossAverage)}.Weigh(shares, dp)
	d.mu.Lock()
	if _, known := d.work[step]; !known && d.images == nil { // this process may not serve every replica
		for _, share := range shares {
			for _, b := range share {
				d.work[step] += d.r.layout.MicroFlops(0, b.CuSeqlens)
			}
		}
	}
	delete(d.work, step-recentMax)
	d.mu.Unlock()
	for k, b := range shares[dp] {
		mb := microbatch(&b, weights[k], uint64(c.Train.Seed), d.r.draws())
		d.byName(&mb, &b, step)
		if d.answers != nil {
			if err := d.answers.fill(&mb, &b, m.batches); err != nil {
				return nil, err
			}
		}
		if d.teacher != nil {
			if err := teach(d.teacher, &mb); err != nil {
				return nil, err
			}
		}
		if d.images != nil {
			if err := d.images.Fill(&mb, &b); err != nil {
				return nil, err
			}
			d.mu.Lock()
			d.work[step] += d.r.layout.MicroFlops(d.r.job.Model.Class(&family.Inputs{Rows: len(mb.IDs),
				Images: mb.Images, More: mb.More, Step: step}, d.r.layout.Filled), mb.Cu)
			d.mu.Unlock()
		}
		out = append(out, mb)
	}
	return out, nil
}

// shares is what each replica computes of a step.
func (d *data) shares(batches []dataset.Batch) [][]dataset.Batch {
	if d.balance != nil {
		return d.balance.all(batches)
	}
	out := make([][]dataset.Batch, d.r.cfg.Run.Plan.DP)
	for r := range out {
		out[r] = dataset.Share(batches, r, len(out))
	}
	return out
}

// microbatch gives every token the weight of its loss, and with keys an identity for dropout that
// depends on its sample and place alone.
func microbatch(b *dataset.Batch, weights []float32, seed uint64, keys bool) family.Microbatch {
	mb := family.Microbatch{IDs: b.Tokens, Targets: b.Labels, Positions: b.Positions, Cu: b.CuSeqlens, Weights: weights}
	if keys {
		mb.Keys = make([]int64, len(b.Tokens))
		for s, id := range b.SampleIDs {
			for i := b.CuSeqlens[s]; i < b.CuSeqlens[s+1]; i++ {
				mb.Keys[i] = int64(dataset.Draw(seed, 0, id, 0, int64(i)%int64(b.SeqLen)))
			}
		}
	}
	return mb
}

// flops is the work of a step whose microbatches differ, or 0.
func (d *data) flops(step int64) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.work[step]
}

// entered waits until a step is in the ledger, but not longer than a while.
func (d *data) entered(step int64, within time.Duration) {
	for until := time.Now().Add(within); d.inLedger.Load() < step && time.Now().Before(until); {
		<-time.After(time.Millisecond)
	}
}

// commit enters a committed step into the ledger.
func (d *data) commit(step int64) {
	d.entering.Lock()
	defer d.entering.Unlock()
	defer d.inLedger.Store(step)
	if d.rollouts != nil {
		d.rollouts.Trained(step)
	}
	d.mu.Lock()
	m := d.recent[step]
	d.mu.Unlock()
	if m == nil || d.ledger == nil {
		return
	}
	if d.balance != nil {
		if s := d.balance.observe(step, m.batches, time.Now()); s != "" {
			d.r.report.say("balance %s", s)
		}
	}
	var ids []int64
	for i := range m.batches {
		ids = append(ids, m.batches[i].Samples()...)
	}
	err := d.ledger.Truncate(step) // of a step that is committed once more, after the run went back
	if err == nil {
		err = d.ledger.Append(step, m.start, ids)
	}
	if err != nil {
		if !d.told { // a full disk must not fill the terminal too
			d.r.report.say("! the ledger of samples is not written: %v; training goes on, and lfactor "+
				"data blame will not know these steps", err)
		}
		d.told = true
	}
}

// close closes loaders, sources, quarantine and ledger.
func (d *data) close() {
	if d.stuck.Load() { // a read has not come back; what it uses stays open until the process ends
		return
	}
	if d.train != nil {
		d.train.Close()
	}
	for _, l := range d.valid {
		l.Close()
	}
	for _, s := range d.sources {
		_ = s.Close() // read-only files
	}
	if d.rollouts != nil {
		d.rollouts.Close()
	}
	if d.teacher != nil {
		d.teacher.Close()
	}
	if d.answers != nil && d.answers.ref != nil {
		d.answers.ref.Close()
	}
	if d.bad != nil {
		_ = d.bad.Close() // each line was written when it was found
	}
	if d.ledger != nil {
		_ = d.ledger.Close() // every step was synced
	}
}

// draws reports whether the model draws numbers by row: for dropout, or to jitter what routers read.
func (r *Run) draws() bool {
	return r.cfg.Run.LoRA.Dropout > 0 || r.job.Model.Spec.Experts.Jitter > 0
}
