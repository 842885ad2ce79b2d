package recipe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/topology/machine"
)

// version is that of the rules by which steps decide and files are written: work of another one does not go on.
const version = 3

// Progress sees how far a recipe is: what is under way, and how many of its blocks are
// done. It is called by one goroutine at a time.
type Progress func(what string, done, all int64)

// Run carries out a recipe: what an earlier run has finished is not done again, and the bytes are the
// same whatever was cut off and whoever did it. It holds the output folder for this process. Blocks
// are made, and keys sorted, by hosts, as Work does it there; see may be nil. More unreadable
// documents than the recipe allows end it with a *dataset.BudgetError.
func Run(ctx context.Context, r *Recipe, see Progress, hosts dataset.Remote) (*Report, error) {
	if see == nil {
		see = func(string, int64, int64) {}
	}
	var one sync.Mutex
	tell := see
	see = func(what string, done, all int64) {
		one.Lock()
		defer one.Unlock()
		tell(what, done, all)
	}
	release, err := machine.LockDir("output of the recipe", r.Output)
	if err != nil {
		return nil, err
	}
	defer release()
	f, err := r.open()
	if err != nil {
		return nil, err
	}
	defer closeInputs(f.inputs)
	rep, err := f.begin()
	if rep != nil || err != nil {
		return rep, err
	}
	for at := range f.stages {
		if err := f.stage(ctx, at, see, hosts); err != nil {
			return nil, err
		}
	}
	return f.finish(see)
}

// Work is what hosts do for Run that are elsewhere: blocks, of inputs that they read themselves or of blocks
// that come along, and behind the parts for stages those for the keys of each stage, which come along too.
// done closes what it has opened.
func Work(r *Recipe) (work dataset.Work, done func(), err error) {
	f, err := r.open()
	if err != nil {
		return nil, nil, err
	}
	workers := sync.Pool{New: func() any { return f.newWorker() }}
	work = func(ctx context.Context, part int, from, to int64, with []byte) ([]byte, error) {
		if part >= len(f.stages) {
			return dataset.EncodeItems(ctx, from, to, func(int64) found {
				return findIn(f.form(part-len(f.stages)), with)
			})
		}
		w := workers.Get().(*worker)
		defer workers.Put(w)
		return dataset.EncodeItems(ctx, from, to, func(u int64) made {
			b, err := w.make(ctx, part, int(u), with)
			return made{Block: b, Fault: dataset.FaultOf(err)}
		})
	}
	return work, func() { closeInputs(f.inputs) }, nil
}

// made is a block as it travels.
type made struct {
	Block []byte
	Fault dataset.Fault
	err   error // here
}

// state is what the output folder says about whose it is.
type state struct {
	Version int    `json:"version"`
	Recipe  string `json:"recipe"`          // hash of the file
	Inputs  string `json:"inputs"`          // hash of their fingerprints
	Steps   string `json:"steps,omitempty"` // hash of what steps read: models, lists, sets
	Done    bool   `json:"done"`
}

// statePath is where the output folder says whose it is.
func (r *Recipe) statePath() string { return statePathOf(r.Output) }

func statePathOf(output string) string { return filepath.Join(output, ".recipe.json") }

// identity returns what the state of this recipe is before it is done.
func (f *flow) identity() (state, error) {
	h := sha256.Sum256(f.text)
	all := sha256.New()
	for _, in := range f.inputs {
		for _, s := range in.files {
			fmt.Fprintf(all, "%d:%s", len(s.Fingerprint()), s.Fingerprint())
		}
		fmt.Fprint(all, "\n")
	}
	s := state{Version: version, Recipe: hex.EncodeToString(h[:16]), Inputs: hex.EncodeToString(all.Sum(nil)[:16])}
	read := sha256.New()
	for i := range f.Steps {
		if r, ok := f.Steps[i].step.(curate.Reading); ok {
			print, err := r.Fingerprint()
			if err != nil {
				return s, fmt.Errorf("step %q: %w", f.Steps[i].Name, err)
			}
			fmt.Fprintf(read, "%d:%s\n", i, print)
			s.Steps = hex.EncodeToString(read.Sum(nil)[:16])
		}
	}
	return s, nil
}

// begin looks at what the output folder holds: nothing, this recipe's work, or its result, which it returns.
func (f *flow) begin() (*Report, error) {
	want, err := f.identity()
	if err != nil {
		return nil, err
	}
	f.began = want
	parts, err := filepath.Glob(filepath.Join(f.Output, machine.PartFiles))
	for _, p := range parts { // of a process that was killed while it wrote
		err = errors.Join(err, os.Remove(p))
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(f.statePath())
	switch {
	case errors.Is(err, os.ErrNotExist):
		entries, err := os.ReadDir(f.Output)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Name() != ".lock" && e.Name() != workDir {
				return nil, fmt.Errorf("output %s: %q lies there, which no recipe has written; name a new folder",
					f.Output, e.Name())
			}
		}
		if err := os.MkdirAll(f.work(), 0o755); err != nil {
			return nil, err
		}
		return nil, f.putState(want)
	case err != nil:
		return nil, err
	}
	var have state
	if err := json.Unmarshal(text, &have); err != nil {
		return nil, fmt.Errorf("%s: %w; name a new folder", f.statePath(), err)
	}
	done := have.Done
	have.Done = false
	switch {
	case have.Recipe != want.Recipe:
		return nil, fmt.Errorf("output %s: it holds the work of another recipe, or of this one before it was "+
			"changed; name a new folder, or remove this one", f.Output)
	case have.Inputs != want.Inputs:
		return nil, fmt.Errorf("output %s: the inputs are not those that its work was begun with; put them back, "+
			"name a new folder, or remove this one", f.Output)
	case have.Steps != want.Steps:
		return nil, fmt.Errorf("output %s: a model or file that steps read is not the one that its work was begun "+
			"with; put it back, name a new folder, or remove this one", f.Output)
	case have != want:
		return nil, fmt.Errorf("output %s: another version of lfactor has begun it; name a new folder, or remove "+
			"this one", f.Output)
	case !done:
		return nil, os.MkdirAll(f.work(), 0o755)
	}
	rep, err := readReport(f.Output)
	if err == nil {
		err = os.RemoveAll(f.work())
	}
	return rep, err
}

func (f *flow) putState(s state) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeAtomic(f.statePath(), func(file *os.File) error {
		_, err := file.Write(append(text, '\n'))
		return err
	})
}

// stage makes the blocks of a stage that are not there, and then what follows from all of them.
func (f *flow) stage(ctx context.Context, at int, see Progress, hosts dataset.Remote) error {
	s := f.stages[at]
	if err := f.blocks(ctx, at, see, hosts); err != nil {
		return err
	}
	if s.step >= 0 {
		see(f.Steps[s.step].Name+": compare", 0, 0)
		return f.resolve(ctx, at, hosts)
	}
	return f.assemble(ctx, at, see)
}

// blocks makes the blocks of a stage that are not there.
func (f *flow) blocks(ctx context.Context, at int, see Progress, hosts dataset.Remote) error {
	n := len(f.units[at])
	for u := 0; u < n; u += 1000 {
		if err := os.MkdirAll(filepath.Dir(f.blockPath(at, u)), 0o755); err != nil {
			return err
		}
	}
	var missing []int
	for u := range n {
		if _, err := os.Stat(f.blockPath(at, u)); err != nil {
			missing = append(missing, u)
		}
	}
	if len(missing) == 0 {
		return f.quarantined(at, n)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	one := f.maker(ctx, at, missing, hosts)
	done := atomic.Int64{}
	done.Store(int64(n - len(missing)))
	next := atomic.Int64{}
	var wg sync.WaitGroup
	for range min(f.makers(hosts), len(missing)) {
		wg.Go(func() {
			w := f.newWorker()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(missing) {
					return
				}
				if err := f.put(at, missing[i], one(w, i)); err != nil {
					cancel(err)
					return
				}
				see(f.stageName(at), done.Add(1), int64(n))
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return f.quarantined(at, n)
}

// makers is how many blocks are under way at once.
func (f *flow) makers(hosts dataset.Remote) int {
	if hosts.Do == nil {
		return f.Workers
	}
	return max(f.Workers, hosts.Ahead)
}

// maker returns what makes the block of the i-th missing unit: a worker here, or hosts elsewhere.
func (f *flow) maker(ctx context.Context, at int, missing []int, hosts dataset.Remote) func(*worker, int) made {
	if hosts.Do == nil {
		return func(w *worker, i int) made {
			b, err := w.make(ctx, at, missing[i], nil)
			return made{Block: b, err: err}
		}
	}
	do := hosts.Do
	hosts.Part = at
	hosts.With = func(i, _ int64) ([]byte, error) { return f.along(at, missing[i]) }
	hosts.Do = func(ctx context.Context, part int, i, _ int64, with []byte) ([]byte, error) {
		u := int64(missing[i])
		return do(ctx, part, u, u+1, with)
	}
	there := dataset.Items(ctx, hosts, 0, int64(len(missing)), 1,
		func(int64) made { panic("recipe: asked here") }, func(err error) made { return made{err: err} })
	return func(_ *worker, i int) made { return there(int64(i)) }
}

// put writes a block's file.
func (f *flow) put(at, u int, m made) error {
	if err := errors.Join(m.err, m.Fault.Err()); err != nil {
		return err
	}
	return writeAtomic(f.blockPath(at, u), func(file *os.File) error {
		_, err := file.Write(m.Block)
		return err
	})
}

// stageName is what a stage is called while it is under way.
func (f *flow) stageName(at int) string {
	if s := f.stages[at]; s.step >= 0 {
		return "up to " + f.Steps[s.step].Name
	}
	return "up to output " + f.Outputs[f.stages[at].output].Name
}

// quarantined holds the number of unreadable documents to the budget; of an input not all may be.
func (f *flow) quarantined(at, n int) error {
	total := map[string]*Counts{}
	for u := range n {
		b, err := openBlock(f.blockPath(at, u))
		if err != nil {
			return err
		}
		for name, c := range b.head.Counts {
			if total[name] == nil {
				total[name] = &Counts{}
			}
			total[name].add(c)
		}
		if err := b.close(); err != nil {
			return err
		}
	}
	for _, in := range f.inputs {
		c := total[in.Name]
		if c == nil {
			continue
		}
		bad := c.Dropped[unreadable]
		none := bad > 0 && bad == in.docs
		if bad <= f.Quarantine && !none {
			continue
		}
		var last dataset.Bad
		err := f.ledger(at, func(d Drop) {
			if d.Reason == unreadable && d.Input == in.Name {
				last = dataset.Bad{Source: in.Name, Document: d.Document,
					Place: dataset.Place{File: d.File, Offset: d.Offset}, Reason: d.Detail}
			}
		})
		if none {
			return errors.Join(err, fmt.Errorf("input %q: %w: all %d are unreadable, the last, %s, for: %s", in.Name,
				dataset.ErrNoTokens, bad, last.Place, last.Reason))
		}
		return errors.Join(err, &dataset.BudgetError{Budget: dataset.Budget{Count: f.Quarantine}, Bad: bad,
			Read: c.In, Last: last})
	}
	return nil
}
