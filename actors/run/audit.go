package run

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// AuditOptions say what an audit takes again.
type AuditOptions struct {
	Steps    int       // how many steps are drawn
	Seed     uint64    // of the draw
	Within   int64     // how many steps a drawn one may be behind a checkpoint, 0 for any number
	Progress io.Writer // takes lines for people
}

// Audited is what an audit of a run has found.
type Audited struct {
	Run   string  `json:"run"`
	Root  string  `json:"root"`      // of the chain
	Steps int     `json:"steps"`     // in the chain
	Can   int     `json:"auditable"` // of which there is a state to take them again from
	Drawn []int64 `json:"drawn"`
	Again int     `json:"again"` // steps that were trained again: those drawn, and those on the way to them
	Read  int     `json:"read"`  // steps whose samples were read again
	// Differ is the first difference of each kind, the earliest step first.
	Differ []Differing `json:"differ"`
	// Damaged is what cannot be looked at, and why.
	Damaged []string `json:"damaged"`
	Notes   []string `json:"notes"`
}

// Differing is something that is not what the chain says.
type Differing struct {
	Step int64  `json:"step"` // 0 for what is of no step
	What string `json:"what"`
	Was  string `json:"was"`
	Is   string `json:"is"`
	More int    `json:"more"` // how many more of its kind differ
}

// audit is an audit under way.
type audit struct {
	Audited
	o     AuditOptions
	cfg   *configs.Config // as run.yaml has it now
	chain *record.Links
	kept  map[int64]string // checkpoints that are whole, by step
}

// Audit holds the records of a run to its chain, reads the samples of all steps again, and trains steps that are drawn
// again, each from the nearest checkpoint before it. Nothing in the run's folders is changed.
func Audit(ctx context.Context, dir string, o AuditOptions) (*Audited, error) {
	a := &audit{o: o, Audited: Audited{Run: dir, Drawn: []int64{}, Differ: []Differing{}, Damaged: []string{},
		Notes: []string{}}}
	var err error
	if a.chain, err = record.ReadChain(dir); errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: without its chain a run cannot be audited; name a run directory (log.dir) of this version", err)
	} else if err == nil && (len(a.chain.Began) == 0 || len(a.chain.Taken) == 0) {
		err = fmt.Errorf("%s has no step", filepath.Join(dir, record.ChainName))
	}
	if err == nil {
		a.cfg, err = configs.Load(configs.Request{File: filepath.Join(dir, "run.yaml"), Getenv: os.Getenv})
	}
	if err != nil {
		return nil, exit.With(err, exit.Corrupt)
	}
	a.Root, a.Steps = a.chain.Root, len(a.chain.Taken)
	a.records()
	if err := a.reread(); err != nil {
		a.damaged("samples cannot be read again: %v", elsewhere(filepath.Join(dir, "run.yaml"), err))
	}
	if err := a.checkpoints(); err != nil {
		return nil, exit.With(err, exit.Corrupt)
	}
	err = a.redo(ctx)
	slices.SortStableFunc(a.Differ, func(x, y Differing) int { return cmp.Compare(x.Step, y.Step) })
	return &a.Audited, err
}

func (a *audit) damaged(format string, v ...any) {
	a.Damaged = append(a.Damaged, configs.Redact(fmt.Sprintf(format, v...)))
}

// hold notes a difference, the first of each kind with its values.
func (a *audit) hold(step int64, what string, was, is any) {
	if was == is {
		return
	}
	for i := range a.Differ {
		if a.Differ[i].What == what {
			a.Differ[i].More++
			return
		}
	}
	a.Differ = append(a.Differ, Differing{Step: step, What: what, Was: fmt.Sprint(was), Is: fmt.Sprint(is)})
}

// held compares a step with the chain's, as what has it, and tells whether they are the same.
func (a *audit) held(of string, was, is record.Taken) bool {
	a.hold(was.Step, of+"samples", was.Samples, is.Samples)
	a.hold(was.Step, of+"loss", was.Loss, is.Loss)
	a.hold(was.Step, of+"gradient norm", was.GradNorm, is.GradNorm)
	a.hold(was.Step, of+"learning rate", was.LR, is.LR)
	return was == is
}

// overrides are settings that run.yaml has otherwise than the chain, as the chain has them.
func (a *audit) overrides(was map[string]string) (args []string, all []configs.Change) {
	for _, c := range configs.Diff(was, a.cfg.Flat()) {
		if _, known := was[c.Key]; known {
			args, all = append(args, c.Key+"="+c.A), append(all, c)
		}
	}
	return args, all
}

// records holds chain, settings and metrics to each other.
func (a *audit) records() {
	for _, f := range a.chain.Faults {
		a.hold(max(0, f.After), "chain", fmt.Sprintf("%s:%d", record.ChainName, f.Line), f.Why)
	}
	now := a.chain.Began[len(a.chain.Began)-1]
	_, changed := a.overrides(now.Config)
	for _, c := range changed {
		a.hold(0, "setting "+c.Key, c.A, c.B)
	}
	if now.Build != buildHash() {
		a.Notes = append(a.Notes, "this program is another build than the one that trained the run last: a difference may be its own")
	}
	if a.cfg.Run.Log.JSONL == "" {
		a.Notes = append(a.Notes, "log.jsonl is empty: there are no metrics to hold to the chain")
		return
	}
	have, err := allMetrics(filepath.Join(a.Run, a.cfg.Run.Log.JSONL))
	if err != nil {
		a.damaged("%v", err)
		return
	}
	for _, t := range a.chain.Taken {
		m, ok := have[t.Step]
		if delete(have, t.Step); !ok {
			a.hold(t.Step, "metrics", "a line of the step", "none")
			continue
		}
		a.held("metrics: ", t, record.Taken{Step: t.Step, Loss: m.Loss, GradNorm: m.GradNorm, LR: m.LR, Samples: t.Samples})
	}
	for _, step := range slices.Sorted(maps.Keys(have)) {
		if step >= a.chain.Began[0].First {
			a.hold(step, "chain", "a line of the step, which metrics have", "none")
		}
	}
}

// allMetrics is what a run wrote down of its steps; a step that was taken again counts as it was then.
func allMetrics(path string) (map[int64]Metrics, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	out, in := map[int64]Metrics{}, bufio.NewScanner(f)
	for in.Buffer(nil, 1<<24); in.Scan(); {
		var m Metrics
		if json.Unmarshal(in.Bytes(), &m) == nil { // a last line may be cut off
			out[m.Step] = m
		}
	}
	return out, in.Err()
}

// reread reads the samples of every step again where the ledger says that they begin.
func (a *audit) reread() error {
	ledger, err := dataset.ReadLedger(filepath.Join(a.Run, LedgerName))
	if err != nil {
		return err
	}
	defer ledger.Close() //nolint:errcheck // it is only read
	now := a.chain.Began[len(a.chain.Began)-1]
	args, _ := a.overrides(now.Config)
	d, conf, err := openAgain(filepath.Join(a.Run, "run.yaml"), args)
	if err != nil {
		return err
	}
	defer d.close()
	conf.Budget = dataset.Budget{Fraction: 1}
	if err = d.openTrain(conf); err != nil {
		return err
	}
	order := d.train.Position().Order
	a.hold(0, "data", now.Data, order)
	for _, t := range a.chain.Taken {
		ids, start, err := ledger.Blame(t.Step)
		if t.Samples == "" {
			continue // another process led, which read no data
		} else if err != nil {
			a.hold(t.Step, "ledger", "the samples of the step", err.Error())
			continue
		}
		if start.Order = order; !reflect.DeepEqual(start, d.train.Position()) {
			if err := d.train.Seek(start); err != nil {
				return fmt.Errorf("step %d: %w", t.Step, err)
			}
		}
		batches, err := d.train.Step(start.Step)
		if err != nil {
			return fmt.Errorf("step %d: %w", t.Step, err)
		}
		var is []int64
		for i := range batches {
			is = append(is, batches[i].Samples()...)
		}
		a.Read++
		a.hold(t.Step, "ledger", fmt.Sprint(is), fmt.Sprint(ids))
		a.hold(t.Step, "samples", t.Samples, samplesHash(batches))
	}
	return nil
}

// checkpoints finds the checkpoints that are whole and are those that the run saved.
func (a *audit) checkpoints() error {
	kept, err := keptBy(a.cfg)
	if err != nil {
		return err
	}
	a.kept = map[int64]string{}
	for _, step := range slices.Sorted(maps.Keys(kept)) {
		text, err := os.ReadFile(filepath.Join(kept[step], checkpoint.ManifestName))
		if err == nil {
			err = verified(kept[step])
		}
		switch was := a.chain.Saved[step]; {
		case err != nil:
			a.damaged("the checkpoint of step %d: %v", step, err)
		case was == "":
			a.Notes = append(a.Notes, fmt.Sprintf("the chain does not have the checkpoint of step %d, and no step is taken from it", step))
		case was != record.SHA256(text):
			a.hold(step, "checkpoint", was, record.SHA256(text))
		default:
			a.kept[step] = kept[step]
		}
	}
	return nil
}

// verified reads all bytes of a checkpoint.
func verified(path string) error {
	c, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it is only read
	return c.Verify()
}

// base is the state that a step can be taken again from, the step behind which it was; false where there is none.
// Settings are the same from there on.
func (a *audit) base(step int64) (at int64, was *record.Began, ok bool) {
	first := a.chain.Began[0]
	for i := range a.chain.Began {
		b := &a.chain.Began[i]
		if b.First > step {
			break
		}
		if was == nil || !reflect.DeepEqual(was.Config, b.Config) {
			was = b
		}
	}
	at, ok = first.First-1, was != nil && was.First == first.First && first.Own == 0
	for s := range a.kept { //lfvet:order the greatest is kept
		if s < step && s >= was.First-1 && (s > at || !ok) {
			at, ok = s, true
		}
	}
	return at, was, ok && (a.o.Within == 0 || step-at <= a.o.Within)
}

// redo draws steps and trains them again.
func (a *audit) redo(ctx context.Context) error {
	var can []int64
	for _, t := range a.chain.Taken {
		if _, _, ok := a.base(t.Step); ok {
			can = append(can, t.Step)
		}
	}
	if a.Can = len(can); a.Can == 0 {
		a.damaged("no step can be trained again: none has a checkpoint before it (checkpoint.interval and checkpoint.keep say " +
			"which stay), or --within is too small")
		return nil
	}
	if missing := a.Steps - a.Can; missing > 0 {
		a.Notes = append(a.Notes, fmt.Sprintf("%d of %d steps cannot be trained again: there is no checkpoint before them any "+
			"more, or it is farther away than --within says", missing, a.Steps))
	}
	r := rand.New(rand.NewPCG(a.o.Seed, 0))
	r.Shuffle(len(can), func(i, j int) { can[i], can[j] = can[j], can[i] })
	a.Drawn = slices.Sorted(slices.Values(can[:min(a.o.Steps, len(can))]))
	for i := 0; i < len(a.Drawn); i++ {
		at, was, _ := a.base(a.Drawn[i])
		for i+1 < len(a.Drawn) {
			if next, _, _ := a.base(a.Drawn[i+1]); next != at {
				break
			}
			i++
		}
		fmt.Fprintf(a.o.Progress, "steps %d to %d are trained again\n", at+1, a.Drawn[i])
		if err := a.stretch(ctx, at, a.Drawn[i], was); errors.Is(err, ErrStopped) {
			return err
		} else if err != nil {
			a.damaged("steps %d to %d cannot be trained again: %v", at+1, a.Drawn[i],
				elsewhere(filepath.Join(a.Run, "run.yaml"), err))
		}
	}
	return nil
}

// stretch trains the steps behind a state again, up to one, and holds them to the chain until one differs.
func (a *audit) stretch(ctx context.Context, at, step int64, was *record.Began) error {
	tmp, err := os.MkdirTemp("", "lfactor-audit-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // rubbish of the system's folder for it
	args, _ := a.overrides(was.Config)
	if a.cfg.Run.Train.Epochs > 0 { // which would be counted, and all of them taken
		args = append(args, fmt.Sprint("train.steps=", step))
	}
	cfg, err := configs.Load(configs.Request{File: filepath.Join(a.Run, "run.yaml"), Args: args, Getenv: os.Getenv})
	if err != nil {
		return err
	}
	cfg.Run.Train.Steps = was.Steps // which rates follow from
	if err := trainAgain(ctx, cfg, tmp, a.kept[at], step, nil); err != nil {
		return err
	}
	again, err := record.ReadChain(filepath.Join(tmp, "run"))
	if err == nil && (len(again.Taken) == 0 || again.Taken[0].Step != at+1) {
		err = fmt.Errorf("the run did not go on from step %d", at)
	}
	if err != nil {
		return err
	}
	is := map[int64]record.Taken{}
	for _, t := range again.Taken {
		is[t.Step] = t
	}
	for _, t := range a.chain.Taken {
		if t.Step <= at || t.Step > step {
			continue
		}
		now := is[t.Step]
		if a.Again++; t.Samples == "" {
			now.Samples = ""
		}
		if !a.held("", t, now) {
			return nil // those behind it have other weights
		}
	}
	if then, ok := a.kept[step]; ok {
		name, err := sameParams(then, filepath.Join(tmp, "checkpoints"))
		if err != nil {
			return err
		}
		a.hold(step, "weights of the checkpoint", "same", name)
	}
	return nil
}
