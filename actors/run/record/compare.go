package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Comparison says where two runs part.
type Comparison struct {
	Keys  []configs.Change `json:"keys"`  // settings that differ
	Steps int64            `json:"steps"` // the last step that both have
	// The first steps whose samples, losses and gradient norms differ, to the bit; 0 for none.
	Samples int64 `json:"samples_part_at"`
	Loss    int64 `json:"losses_part_at"`
	Norm    int64 `json:"gradient_norms_part_at"`
	// At are both losses at step Loss, and Last at step Steps.
	At   [2]float64 `json:"losses_there"`
	Last [2]float64 `json:"last_losses"`
	// Farthest is the step at which losses are farthest apart, and Apart by how much.
	Farthest int64   `json:"farthest_at"`
	Apart    float64 `json:"apart"`
	// Saved are the steps that both have checkpoints of; Tensors differ in the first of them that does,
	// at step TensorsAt.
	Saved     []int64  `json:"saved"`
	TensorsAt int64    `json:"tensors_part_at"`
	Tensors   []string `json:"tensors,omitempty"`
	// Seen is the first tensor of those that both have written down whose statistics differ, SeenSteps the
	// last step that both have some of.
	Seen      *Seen `json:"seen,omitempty"`
	SeenSteps int64 `json:"seen_steps,omitempty"`
}

// Equal reports whether no number of the runs differs.
func (c *Comparison) Equal() bool {
	return c.Samples == 0 && c.Loss == 0 && c.Norm == 0 && c.TensorsAt == 0 && c.Seen == nil
}

// Compare reads the folders of two runs (log.dir): settings, metrics, the samples of each step, and checkpoints.
func Compare(a, b string) (*Comparison, error) {
	c := &Comparison{}
	var cfg [2]*configs.Config
	var curves [2]map[int64]point
	for i, dir := range []string{a, b} {
		var err error
		if curves[i], err = metrics(filepath.Join(dir, "metrics.jsonl")); err != nil {
			return nil, err
		}
		if cfg[i], err = configs.Load(configs.Request{File: filepath.Join(dir, "run.yaml"),
			Getenv: os.Getenv}); err != nil {
			return nil, err
		}
	}
	c.Keys = configs.Diff(cfg[0].Flat(), cfg[1].Flat())
	c.curves(curves)
	if err := c.samples(a, b); err != nil {
		return nil, err
	}
	if err := c.seen(a, b); err != nil {
		return nil, err
	}
	return c, c.checkpoints(cfg[0].Run.Checkpoint.Dir, cfg[1].Run.Checkpoint.Dir)
}

// point is what metrics have of a step.
type point struct{ loss, norm float64 }

// metrics reads the last line of each step: one that was repeated after a restart counts as it was repeated.
func metrics(name string) (map[int64]point, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read only
	out := map[int64]point{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for n := 1; in.Scan(); n++ {
		var m struct {
			Step       int64
			Loss, Norm *float64
			GradNorm   *float64 `json:"grad_norm"`
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if m.Step > 0 && m.Loss != nil {
			p := point{loss: *m.Loss}
			if m.GradNorm != nil {
				p.norm = *m.GradNorm
			}
			out[m.Step] = p
		}
	}
	return out, in.Err()
}

// differ reports whether two numbers differ to the bit.
func differ(a, b float64) bool { return math.Float64bits(a) != math.Float64bits(b) }

func (c *Comparison) curves(of [2]map[int64]point) {
	var steps []int64
	for step := range of[0] {
		if _, both := of[1][step]; both {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	for _, step := range steps {
		a, b := of[0][step], of[1][step]
		if c.Loss == 0 && differ(a.loss, b.loss) {
			c.Loss, c.At = step, [2]float64{a.loss, b.loss}
		}
		if c.Norm == 0 && differ(a.norm, b.norm) {
			c.Norm = step
		}
		if off := math.Abs(a.loss - b.loss); off > c.Apart {
			c.Apart, c.Farthest = off, step
		}
		c.Steps, c.Last = step, [2]float64{a.loss, b.loss}
	}
}

// samples compares what the samples of each step teach, as far as the chains of both runs say it: their places, tokens,
// labels, borders and media, wherever and in whatever form their data lie.
func (c *Comparison) samples(a, b string) error {
	var of [2]*Links
	for i, dir := range []string{a, b} {
		var err error
		if of[i], err = ReadChain(dir); errors.Is(err, fs.ErrNotExist) {
			return nil // a run without one has nothing to compare
		} else if err != nil {
			return err
		}
	}
	made := map[int64]string{}
	for _, t := range of[0].Taken {
		made[t.Step] = t.Samples
	}
	for _, t := range of[1].Taken {
		if x := made[t.Step]; c.Samples == 0 && x != "" && t.Samples != "" && x != t.Samples {
			c.Samples = t.Step
		}
	}
	return nil
}

// checkpoints compares those of the same steps, the oldest first, until one has tensors that differ.
func (c *Comparison) checkpoints(a, b string) error {
	if a == "" || b == "" {
		return nil
	}
	at := map[int64]string{}
	list, err := checkpoint.List(a)
	if err != nil {
		return err
	}
	for _, e := range list {
		at[e.Step] = e.Path
	}
	other, err := checkpoint.List(b)
	if err != nil {
		return err
	}
	slices.SortFunc(other, func(x, y checkpoint.Entry) int { return int(x.Step - y.Step) })
	for _, e := range other {
		path, both := at[e.Step]
		if !both {
			continue
		}
		if c.Saved = append(c.Saved, e.Step); c.TensorsAt > 0 {
			continue
		}
		ds, err := differences(path, e.Path)
		if err != nil {
			return err
		}
		if len(ds) > 0 {
			c.TensorsAt, c.Tensors = e.Step, ds
		}
	}
	return nil
}

// differences are those of the parameters and the optimizer's state of two checkpoints.
func differences(a, b string) (all []string, err error) {
	x, err := checkpoint.Open(a)
	if err != nil {
		return nil, err
	}
	defer x.Close() //nolint:errcheck // it was read only
	y, err := checkpoint.Open(b)
	if err != nil {
		return nil, err
	}
	defer y.Close() //nolint:errcheck // it was read only
	kinds := x.Kinds()
	for _, kind := range y.Kinds() {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, kind := range kinds {
		ds, err := checkpoint.Diff(x.Kind(kind), y.Kind(kind))
		if err != nil {
			return nil, err
		}
		for _, d := range ds {
			all = append(all, kind+" "+d.String())
		}
	}
	return all, nil
}
