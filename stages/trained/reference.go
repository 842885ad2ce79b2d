package trained

import (
	"fmt"
	"sync"

	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/stages/sample"
)

// Reference gives log-probabilities under weights that do not change. It opens the model when an answer
// comes that nobody has kept. It is used by several goroutines at once.
type Reference struct {
	Open  func() (*sample.Generator, error)
	Print string // changes with the weights
	Kept  Store  // nil keeps nothing beyond the process

	mu  sync.Mutex
	gen *sample.Generator
	own map[string][]float32 // of this process
}

// referenceOwn bounds the numbers that a process keeps itself, where a store has all.
const referenceOwn = 4 << 20

// LogProbs gives, for each sequence, the log-probability of each of its tokens but the first: [len-1].
func (r *Reference) LogProbs(sequences [][]int32) ([][]float32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, keys := make([][]float32, len(sequences)), make([]string, len(sequences))
	var missing []int
	for i, s := range sequences {
		keys[i] = format.HashOf("reference 1", r.Print, s)
		v, err := r.find(keys[i], len(s))
		if err != nil {
			return nil, err
		}
		if out[i] = v; v == nil && len(s) > 1 {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	var ids, targets, positions []int32
	cu := []int32{0}
	for _, i := range missing {
		s := sequences[i]
		for k := range s {
			target := int32(-1)
			if k+1 < len(s) {
				target = s[k+1]
			}
			ids, targets, positions = append(ids, s[k]), append(targets, target), append(positions, int32(k))
		}
		cu = append(cu, int32(len(ids)))
	}
	if err := r.opened(); err != nil {
		return nil, err
	}
	all, err := r.gen.LogProbs(ids, targets, positions, cu)
	if err != nil {
		return nil, fmt.Errorf("the reference policy: %w", err)
	}
	for k, i := range missing {
		out[i] = append([]float32(nil), all[cu[k]:cu[k+1]-1]...)
		if err := r.keep(keys[i], out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *Reference) opened() (err error) {
	if r.gen == nil {
		r.gen, err = r.Open()
	}
	return err
}

// find gives what was kept of a sequence of n tokens, nil if nothing was.
func (r *Reference) find(key string, n int) ([]float32, error) {
	if v, ok := r.own[key]; ok || r.Kept == nil {
		return v, nil
	}
	v, err := r.Kept.Get(key)
	if err != nil || v == nil {
		return nil, err
	}
	if len(v) != 1 || len(v[0]) != n-1 {
		return nil, fmt.Errorf("what is kept of the reference policy has another form than %d numbers; remove "+
			"objective.cache, and it is made again", n-1)
	}
	return v[0], nil
}

func (r *Reference) keep(key string, v []float32) error {
	if r.Kept != nil {
		return r.Kept.Put(key, v)
	}
	if r.own == nil || len(r.own)*max(1, len(v)) > referenceOwn {
		r.own = map[string][]float32{}
	}
	r.own[key] = v
	return nil
}

// Close gives the model's memory back.
func (r *Reference) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gen != nil {
		r.gen.Close()
		r.gen = nil
	}
}
