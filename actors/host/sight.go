package host

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Sight is what a run writes down of its tensors: of chosen steps and microbatches those whose names are
// wanted, as numbers in DIR/step-00000010/rank-00000.safetensors and as statistics in DIR/rank-00000.jsonl.
type Sight struct {
	Dir    string
	Names  func(name string) bool
	Steps  func(step int64) bool
	Micro  func(micro int) bool
	Values bool // numbers too
}

// Statistics are a line of the statistics: of what a rank has of a tensor.
type Statistics struct {
	Step int64  `json:"step"`
	Rank int    `json:"rank"`
	Name string `json:"tensor"`
	// of activations and their gradients; parameters have none
	Micro *int   `json:"microbatch,omitempty"`
	Chunk int    `json:"chunk,omitempty"` // of a sequence that is computed in parts, from 0
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	// of parameters: the part of the whole tensor that the rank updates, an interval an axis
	Part      [][2]int `json:"part,omitempty"`
	Min       float64  `json:"min"` // of finite numbers, as the others
	Max       float64  `json:"max"`
	Mean      float64  `json:"mean"`
	RMS       float64  `json:"rms"`
	Zeros     int      `json:"zeros"`
	Nonfinite int      `json:"nonfinite"`
	// how many numbers but 0 have a magnitude of [2^i, 2^(i+1)), for i from Least on
	Least     int   `json:"least_exponent"`
	Histogram []int `json:"histogram"`
	Values    bool  `json:"values"` // the numbers are in the step's file
}

// sightBytes bounds the numbers of a step that a rank holds until they are written; what is beyond is left
// out, and its statistics say so.
const sightBytes = 1 << 30

// sight is what a rank has seen of a step.
type sight struct {
	*Sight
	rank  int
	step  int64
	lines []Statistics
	infos []checkpoint.Info
	data  [][]byte
	bytes int64
	had   map[string]bool
}

// of is what sees the module's tensors of a job; nil where nothing of it is wanted.
func (s *sight) of(b kernels.Backend, j actors.Job, key frameKey) func(name string, t *tensor.Tensor) {
	micro := int(key.micro)
	if s == nil || j.Step < 0 || !s.Steps(j.Step) || !s.Micro(micro) {
		return nil
	}
	s.begin(j.Step)
	return func(name string, t *tensor.Tensor) {
		if !s.Names(name) || !t.DType.Float() {
			return
		}
		file := fmt.Sprintf("%s@%d", name, micro)
		if key.chunk > 0 {
			file += fmt.Sprintf(".%d", key.chunk)
		}
		s.add(b, t, file, Statistics{Name: name, Micro: &micro, Chunk: int(key.chunk)})
	}
}

// begin forgets what was seen of another step, which was given up.
func (s *sight) begin(step int64) {
	if s.step != step {
		s.step, s.lines, s.infos, s.data, s.bytes, s.had = step, nil, nil, nil, 0, map[string]bool{}
	}
}

// add takes a tensor in.
func (s *sight) add(b kernels.Backend, t *tensor.Tensor, file string, line Statistics) {
	if s.had[file] {
		return
	}
	s.had[file] = true
	h := kernels.Host(b, t)
	defer h.Release()
	line.Step, line.Rank, line.DType, line.Shape = s.step, s.rank, t.DType.String(), slices.Clone(t.Shape)
	wide := make([]float32, t.Len())
	tensor.Widen(t.DType, h.Bytes(), wide)
	line.count(wide)
	if n := int64(h.Size()); s.Values && s.bytes+n <= sightBytes {
		line.Values, s.bytes = true, s.bytes+n
		s.infos = append(s.infos, checkpoint.Info{Name: file, DType: checkpointType(t.DType), Shape: line.Shape})
		s.data = append(s.data, slices.Clone(h.Bytes()))
	}
	s.lines = append(s.lines, line)
}

// count fills the statistics of numbers.
func (l *Statistics) count(v []float32) {
	l.Histogram = []int{}
	sum, squares, finite := 0.0, 0.0, 0
	by := map[int]int{}
	for _, x32 := range v {
		x := float64(x32)
		if math.IsNaN(x) || math.IsInf(x, 0) {
			l.Nonfinite++
			continue
		}
		if finite == 0 {
			l.Min, l.Max = x, x
		}
		l.Min, l.Max = min(l.Min, x), max(l.Max, x)
		sum, squares, finite = sum+x, squares+x*x, finite+1
		if x == 0 {
			l.Zeros++
			continue
		}
		_, e := math.Frexp(x)
		by[e-1]++
	}
	if finite > 0 {
		l.Mean, l.RMS = sum/float64(finite), math.Sqrt(squares/float64(finite))
	}
	if len(by) == 0 {
		return
	}
	least, most := math.MaxInt, math.MinInt
	for e := range by {
		least, most = min(least, e), max(most, e)
	}
	l.Least, l.Histogram = least, make([]int, most-least+1)
	for e, n := range by {
		l.Histogram[e-least] = n
	}
}

// seeParameters takes in the weights that a rank updates and their gradients, as they were summed over all ranks.
func (r *Rank) seeParameters(step int64) {
	s := r.sight
	if s == nil || !s.Steps(step) {
		return
	}
	s.begin(step)
	for _, p := range r.c.Params {
		part := p.Own.Intervals(p.Param)
		if s.Names(p.Name) {
			rows := r.rows(p)
			s.add(r.c.Backend, rows, p.Name, Statistics{Name: p.Name, Part: part})
			rows.Release()
		}
		if name := p.Name + "_grad"; s.Names(name) {
			s.add(r.c.Backend, r.owned[p.Name], name, Statistics{Name: name, Part: part})
		}
	}
}

// write puts down what was seen of a step that is over: the file of numbers appears as a whole, then the statistics.
func (s *sight) write(step int64) error {
	if s == nil || s.step != step || len(s.lines) == 0 {
		return nil
	}
	defer s.begin(0)
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	if len(s.infos) > 0 {
		w, err := checkpoint.NewWriterOf(fmt.Sprintf("rank-%05d", s.rank),
			filepath.Join(s.Dir, fmt.Sprintf("step-%08d", step)), s.infos, 0)
		if err != nil {
			return err
		}
		for i, x := range s.infos {
			if err := w.WriteTensor(x.Name, s.data[i]); err != nil {
				return err
			}
		}
		if err := w.Commit(); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(s.Dir, fmt.Sprintf("rank-%05d.jsonl", s.rank)),
		os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	for _, l := range s.lines {
		if err = enc.Encode(l); err != nil {
			break
		}
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
