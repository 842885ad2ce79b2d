package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/profiler"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology"
)

// reporter tells the user how a run goes: a line a step on stderr, metrics, TensorBoard events, a log and a curve.
type reporter struct {
	aside    bool // the run goes back because of a step out of the ordinary
	r        *Run
	dir      string
	log      *zap.Logger
	logFile  io.Closer
	metrics  *os.File
	sinks    []record.Sink
	began    time.Time
	tokens   float64 // a step
	flops    float64 // a step
	peak     float64 // FLOP/s of the machine, for mfu
	losses   []record.Point
	evals    []record.Point
	closers  []func()
	newest   int64        // step
	shown    atomic.Int64 // newest, for other goroutines
	queued   time.Time    // the newest save
	saving   atomic.Int64 // nanoseconds that the newest save took that is durable
	durable  atomic.Int64 // its step
	given    int64        // the newest step that was given up
	loads    []core.Load  // of experts, the newest
	loadsAt  int64        // the step that they are of
	figures  []float64    // of the step under way, what its loss has shown
	patience patience
	// of products of few bits, the newest, and the step that they are of
	findings   []core.Finding
	scores     []GreatestScore
	shrinks    bool // a score was above its limit in the step before
	gaps       bool // sampler and trainer differed in a step before
	findingsAt int64
	moved      []core.Placed
	movedAt    int64   // the step behind which they moved
	every      float64 // steps from one copy of the state in memory to the next
	silent     bool    // the user knows that metrics are not written
	lost       error   // why the newest checkpoint is not on disk
	missed     int     // saves in a row that failed
	early      bool    // the run has ended before its last step, in order
}

// newReporter opens the files of the run's report, writes the configuration beside them, and prints the header.
// The rates of hardware and model are worked out once here, for the figures of each step.
func newReporter(r *Run) (*reporter, error) {
	l := r.cfg.Run.Log
	p := &reporter{r: r, dir: l.Dir, began: time.Now()}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := p.open(); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	forgetEdges(l.Dir) // of a run before
	c := r.cfg.Run
	p.tokens = float64(c.Train.GlobalBatch * c.Data.SeqLen)
	p.flops = r.layout.StepFlops()
	p.peak = profiler.DevicePeak(c.Device, c.Train.Precision, r.layout.World())
	if err := os.WriteFile(filepath.Join(l.Dir, "run.yaml"), append(startedIn(), r.cfg.YAML()...), 0o600); err != nil {
		return nil, err
	}
	p.header()
	p.patience.begin(p)
	p.openChain()
	return p, nil
}

// open opens the log, the metrics and the TensorBoard file. What an earlier run wrote past the step
// at which this one begins is cut off, since those steps are run again.
func (p *reporter) open() error {
	l := p.r.cfg.Run.Log
	f, err := os.OpenFile(filepath.Join(l.Dir, "log.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.evals = evaluations(f.Name(), p.r.recordsEnd())
	enc := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	p.log, p.logFile = zap.New(zapcore.NewCore(enc, zapcore.AddSync(f), zap.InfoLevel)), f
	if l.JSONL != "" {
		if p.metrics, p.losses, err = openMetrics(filepath.Join(l.Dir, l.JSONL), p.r.recordsEnd()); err != nil {
			return err
		}
		if n := len(p.losses); n > 0 && p.r.heir != nil {
			p.newest = int64(p.losses[n-1].X)
		}
	}
	if l.TensorBoard != "" {
		dir := l.TensorBoard
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(l.Dir, dir)
		}
		board, err := record.NewTensorBoard(dir, p.r.start.first)
		if err != nil {
			return err
		}
		p.sinks = append(p.sinks, board)
	}
	return p.trackers()
}

// openMetrics keeps the lines of steps before first, and returns their losses: a resumed run rewrites those
// that it takes again.
func openMetrics(path string, first int64) (f *os.File, losses []record.Point, err error) {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, err
	}
	keep := 0
	for at := 0; at < len(old); {
		end := at
		for end < len(old) && old[end] != '\n' {
			end++
		}
		var m Metrics
		if end == len(old) || json.Unmarshal(old[at:end], &m) != nil || m.Step >= first {
			break
		}
		losses = append(losses, record.Point{X: float64(m.Step), Y: m.Loss})
		at = end + 1
		keep = at
	}
	if err := os.WriteFile(path, old[:keep], 0o600); err != nil {
		return nil, nil, err
	}
	f, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	return f, losses, err
}

// say prints a plain line for the user and logs it.
func (p *reporter) say(format string, a ...any) {
	s := configs.Redact(fmt.Sprintf(format, a...))
	p.log.Info(s)
	fmt.Fprintln(p.r.io.Progress, s)
}

// header prints what is trained, on which plan, from which start, and what changed since the checkpoint.
func (p *reporter) header() {
	r := p.r
	m := r.job.Mesh
	if r.io.Stage != "" && r.start.saved == nil {
		p.say("stage   %s", r.io.Stage)
	}
	for _, err := range r.start.skipped {
		p.say("! checkpoint: %v", err)
	}
	active, shares := "", ""
	if r.job.Model.Spec.Mixes() {
		active = fmt.Sprintf(" (%s a token)", unit.Count(float64(r.job.Model.Active())))
		shares = fmt.Sprintf(" ep=%d etp=%d", m.Len(topology.EP), m.Len(topology.ETP))
	}
	shares += r.shared()
	p.say("model   %s, %s parameters%s, %s", r.job.Model.Family, unit.Count(float64(r.job.Model.Count())),
		active, r.cfg.Run.Train.Precision)
	p.say("plan    pp=%d dp=%d tp=%d%s zero=%d %s, %d microbatches of %d tokens, %d ranks in %d process(es)",
		m.Len(topology.PP), m.Replicas(), m.Len(topology.TP), shares, r.job.Zero, r.job.Schedule, r.job.Micro,
		r.job.Rows, r.layout.World(), r.cfg.Run.Plan.Procs)
	p.say("from    %s", r.start.from)
	if r.cfg.Run.Data.Changes() {
		p.say("weights by steps: %s", r.cfg.Flat()["data.paths"])
	}
	for _, c := range r.start.changed {
		p.say("changed %s: %s → %s", c.Key, c.A, c.B)
	}
	if r.start.rate != "" {
		p.say("rate    %s", r.start.rate)
	}
	p.say("logs    %s", p.dir)
}

// shared says how tokens of a sequence are shared out over ranks and over time, "" where they are not.
func (r *Run) shared() (text string) {
	u := r.job.Mesh.Len(topology.Ulysses)
	if cp := r.job.Mesh.Len(topology.CP) * u; cp > 1 {
		text = fmt.Sprintf(" cp=%d", cp)
		if r.layout.Dealt() > 0 {
			text += " zigzag"
		}
		switch {
		case cp == u:
		case r.job.Ring:
			text += " ring"
		default:
			text += " gather"
		}
		if u > 1 {
			text += fmt.Sprintf(" ulysses=%d", u)
		}
	}
	if r.job.Chunks > 1 {
		text += fmt.Sprintf(" chunks=%d", r.job.Chunks)
	}
	return text
}

// perplexity is what a loss of texts says of the next token, "" for others.
func (p *reporter) perplexity(loss float64) string {
	if !p.r.job.Model.Task().Perplexity || p.r.cfg.Run.Objective.Kind != "none" {
		return ""
	}
	return fmt.Sprintf("  ppl %.2f", math.Exp(loss))
}

// observe turns one report of the coordinator into lines for the reader, records in the log, and
// points on the curves. Topics that it does not know are left out.
func (p *reporter) observe(m actors.Message) {
	switch m.Text {
	case core.TopicStep:
		p.step(m)
	case core.TopicEval:
		p.evaluated(m)
	case core.TopicQueued:
		p.queued = time.Now()
		p.log.Info("checkpoint queued", zap.Int64("step", m.Step))
	case core.TopicDurable:
		after := ""
		if p.missed > 0 {
			after = fmt.Sprintf(", the first after %d that failed", p.missed)
		}
		p.lost, p.missed = nil, 0
		p.saving.Store(int64(time.Since(p.queued)))
		p.durable.Store(m.Step)
		p.say("saved step %d: durable%s", m.Step, after)
	case core.TopicSaveLost:
		again := p.lost != nil
		p.missed++
		p.lost = fmt.Errorf("the checkpoint of step %d was not saved: %w", m.Step, m.Err)
		if again { // said once; "durable" tells that saving works again
			p.log.Warn("checkpoint not saved", zap.Int64("step", m.Step), zap.Error(m.Err))
			return
		}
		p.say("! the checkpoint of step %d was not saved: %v; training goes on, the checkpoint before "+
			"stays valid; this is said once, log.jsonl has every attempt", m.Step, m.Err)
	case core.TopicCopied:
		if v := core.CopyingOf(m.Values); v.Every != p.every {
			p.every = v.Every
			p.log.Info("copies in memory", zap.Int64("step", m.Step), zap.Float64("every", v.Every),
				zap.Float64("seconds", v.Took/1e9))
		}
	case core.TopicBroken:
		p.say("! a connection broke %v; all are made anew", m.Err)
	case core.TopicExperts:
		p.counted(m)
	case core.TopicFindings:
		p.found(m)
	case core.TopicMoved:
		p.moved, p.movedAt = core.Placements(m.Values), m.Step
		p.log.Info("experts moved", zap.Int64("step", m.Step), zap.Int("layers", len(p.moved)))
	case core.TopicSpike:
		p.spike(m)
	case core.TopicVoid:
		p.given = m.Step
		p.say("! %v", m.Err)
		p.log.Warn("step given up", zap.Int64("step", m.Step), zap.Error(m.Err))
	case core.TopicBack:
		p.back(m)
	case core.TopicFailed:
		p.log.Error("failed", zap.Int64("step", m.Step), zap.Error(m.Err))
		var bug links.Traced
		if errors.As(m.Err, &bug) && len(bug.Trace()) > 0 {
			p.log.Error("stack", zap.ByteString("stack", bug.Trace()))
		}
	case core.TopicEnd:
		p.patience.tell(p)
		if p.early = core.Stopped(m.Values); p.early && !p.patience.over.Load() {
			p.say("stopped on request after step %d; repeat the command to go on", m.Step)
		}
	}
}

// spike tells of a step that is not applied because it is out of the ordinary.
func (p *reporter) spike(m actors.Message) {
	x := core.SpikeOf(m.Values)
	what := fmt.Sprintf("gradient norm %.4g (usual is %.4g), loss %.4g (usual is %.4g)", x.Norm, x.UsualNorm, x.Loss,
		x.UsualLoss)
	again := "it is taken again with the samples behind its own"
	if x.From < m.Step {
		again = fmt.Sprintf("steps from %d on are taken again with the samples behind its own, from the state of step %d",
			x.From, x.State)
	}
	p.aside = true
	p.say("! step %d is out of the ordinary: %s; %s", m.Step, what, again)
	p.log.Warn("spike", zap.Int64("step", m.Step), zap.Float64("norm", x.Norm), zap.Float64("usual norm", x.UsualNorm),
		zap.Float64("loss", x.Loss), zap.Float64("usual loss", x.UsualLoss), zap.Int64("again from", x.From),
		zap.Int64("state", x.State))
}

// back tells that a run goes on after a loss, and forgets the steps that are taken again.
func (p *reporter) back(m actors.Message) {
	again := "no step is taken again"
	if n := p.newest - m.Step; n > 0 {
		again = fmt.Sprintf("%d step(s) are taken again", n)
	}
	v := core.ReturnOf(m.Values)
	from := map[int32]string{core.FromDisk: "the checkpoint", core.FromCopy: "copies in memory",
		core.FromMember: "another replica"}[v.Source]
	if m.Step < p.r.start.first && v.Source == core.FromDisk {
		from = "what the run began with"
	}
	if p.aside { // it was said why
		p.aside = false
	} else {
		p.say("recovered after %.2f s: all ranks hold step %d, from %s; %s", v.Took/1e9, m.Step, from, again)
	}
	p.newest = m.Step
	for len(p.losses) > 0 && p.losses[len(p.losses)-1].X > float64(m.Step) {
		p.losses = p.losses[:len(p.losses)-1]
	}
	if p.metrics == nil {
		return
	}
	name := p.metrics.Name()
	p.metrics.Close()
	var err error
	if p.metrics, _, err = openMetrics(name, m.Step+1); err != nil && !p.silent {
		p.silent = true
		p.say("! metrics are not written: %v; training goes on", err)
	}
}

// step is the one line a step.
func (p *reporter) step(m actors.Message) {
	if p.r.heir != nil && m.Step <= p.newest { // the process that led before has told of it
		return
	}
	p.newest = m.Step
	p.shown.Store(m.Step)
	v := core.SummaryOf(m.Values)
	sec := v.Time / 1e9
	if sec == 0 { // as far as another leader had come with it
		sec = math.Inf(1)
	}
	flops := p.flops
	if f := p.r.data.flops(m.Step); f > 0 {
		flops = f
	}
	line := Metrics{Step: m.Step, Loss: v.Loss, GradNorm: v.Norm, LR: v.LR, TokensSec: p.tokens / sec,
		MFU: flops / sec / p.peak, DataWait: v.Wait / 1e9, PeakBytes: v.Peak, Scale: v.Scale, Skipped: v.Overflow,
		Seconds: v.Time / 1e9, Slowest: v.Slowest, Pass: p.r.passes.at(m.Step), Figures: Figures{}}
	if p.loadsAt == m.Step {
		line.Experts = used(p.loads)
	}
	if p.findingsAt == m.Step {
		line.Products, line.Scores = p.productErrors(), p.scores
	}
	line.looked(p.figures, p.r.cfg.Run.Data.Named())
	p.figures = nil
	line.Drawn = p.r.data.rollouts.Gap(m.Step, line.Figures, v.Gap)
	p.gapped(m.Step, line.Drawn)
	if p.movedAt == m.Step {
		line.Moved = places(p.moved)
	}
	p.losses = append(p.losses, record.Point{X: float64(m.Step), Y: line.Loss})
	if see := p.r.io.Step; see != nil {
		see(line)
	}
	if p.metrics != nil {
		if text, err := json.Marshal(finite(line)); err == nil {
			// a full disk must not end training
			if _, err := p.metrics.Write(append(text, '\n')); err != nil && !p.silent {
				p.silent = true
				p.say("! metrics are not written: %v; training goes on", err)
			}
		}
	}
	p.scalars(&line)
	c := p.r.cfg.Run.Train
	if m.Step%int64(c.LogInterval) != 0 && m.Step != int64(c.Steps) {
		return
	}
	done := m.Step - p.r.start.first + 1
	eta := time.Duration(float64(time.Since(p.began)) / float64(done) * float64(int64(c.Steps)-m.Step)).Round(time.Second)
	note := line.Drawn.Note()
	if line.Skipped && p.given == m.Step {
		note += "  no update was made"
	} else if line.Skipped {
		note += "  skipped: gradients overflowed"
	}
	if line.Pass > 0 {
		note = fmt.Sprintf("  pass %.2f", line.Pass) + note
	}
	fmt.Fprintf(p.r.io.Progress, "step %d/%d  loss %.4f  grad_norm %.3f  lr %.3g  tokens/s %.0f  mfu %s  "+
		"data-wait %.1f %%  mem %s  eta %v%s\n", m.Step, c.Steps, line.Loss, line.GradNorm, line.LR, line.TokensSec,
		share(line.MFU), 100*line.DataWait/sec, tensor.Bytes(int64(line.PeakBytes)), eta, note)
}

// scalars hands a step's figures to TensorBoard and others.
func (p *reporter) scalars(line *Metrics) {
	for _, s := range []struct {
		name string
		v    float64
	}{{"train/loss", line.Loss}, {"train/grad_norm", line.GradNorm}, {"train/lr", line.LR},
		{"train/tokens_per_second", line.TokensSec}} {
		p.scalar(s.name, line.Step, s.v)
	}
	if line.Pass > 0 {
		p.scalar("train/pass", line.Step, line.Pass)
	}
	if d := line.Drawn; d != nil && d.Tokens > 0 {
		p.scalar("train/drawn_gap", line.Step, d.Gap)
	}
	for _, name := range slices.Sorted(maps.Keys(line.Figures)) {
		p.scalar("train/"+name, line.Step, line.Figures[name])
	}
}

// share prints a utilisation; one above all there is says that the machine's peak was measured too low.
func share(mfu float64) string {
	if math.IsInf(mfu, 0) || math.IsNaN(mfu) {
		return "unknown" // of a device whose peak is not known
	}
	if mfu > 1 {
		return fmt.Sprintf("%.1f %% (peak in doubt)", 100*mfu)
	}
	return fmt.Sprintf("%.1f %%", 100*mfu)
}

// newestStep is the step that was reported last, also for other goroutines.
func (p *reporter) newestStep() int64 { return p.shown.Load() }

func (p *reporter) onClose(f func()) { p.closers = append(p.closers, f) }

// close ends the files and draws the curve.
func (p *reporter) close() {
	for _, f := range p.closers {
		f()
	}
	if q := p.r.data.quarantined(); q != "" {
		p.say("! %s", q)
	}
	if s := p.r.data.stages(); s != "" {
		p.say("data    %s", s)
	}
	if len(p.losses) > 1 {
		path := filepath.Join(p.dir, "loss.svg")
		unit := p.r.job.Model.Task().Unit
		if p.r.data.answers != nil {
			unit = "loss of an answer or a pair"
		}
		if err := os.WriteFile(path, record.Curve("loss", unit, p.losses, p.evals), 0o600); err == nil {
			p.say("curve   %s", path)
		}
	}
	p.drawExperts()
	p.closeSinks()
	if p.metrics != nil {
		p.metrics.Close()
	}
	_ = p.log.Sync() // what cannot be written was said when it was
	p.logFile.Close()
}
