package torch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// States is what a training keeps beside the weights, so that another goes on where it ended.
type States struct {
	// Kinds are of each weight, by the names of Hugging Face: checkpoint.ExpAvg, ExpAvgSq, Master.
	Kinds   map[string]checkpoint.Source
	Updates int64 // how often the optimizer has changed the weights
	Step    int64 // the iteration
	Adam    Adam  // the optimizer's settings, for writing
	close   []func() error
}

// Closing adds what is to be closed with it.
func (s *States) Closing(c func() error) { s.close = append(s.close, c) }

// Close closes the files.
func (s *States) Close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, c := range s.close {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// masters is Megatron's name of float32 copies of narrower weights.
const masters = "fp32_param"

// kinds are Megatron's names of what is kept of a weight, and ours.
var kinds = map[string]string{"exp_avg": checkpoint.ExpAvg, "exp_avg_sq": checkpoint.ExpAvgSq,
	masters: checkpoint.Master, "param": checkpoint.Master}

// ofModel are keys of torch_dist where the state of each weight has the weight's own key and shape, as all
// but Megatron's distributed optimizer in buckets write it.
var ofModel = regexp.MustCompile(`^(?:chained_\d+\.)?optimizer\.state\.(exp_avg|exp_avg_sq|fp32_param|param)\.(.+)$`)

// OpenMegatronStates opens what Megatron's optimizer keeps in a directory, of the model whose config.json
// lies in the directory like; nil where it keeps nothing.
func OpenMegatronStates(dir, like string) (*States, error) {
	g, err := readGPT(like)
	if err != nil {
		return nil, err
	}
	s := &States{Kinds: map[string]checkpoint.Source{}}
	if isMegatron(dir) {
		err = s.distributed(g, dir)
	} else {
		err = s.ranks(g, dir)
	}
	if err != nil || len(s.Kinds) == 0 {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// distributed reads a directory of torch_dist.
func (s *States) distributed(g *gpt, dir string) error {
	d, err := OpenDCP(dir)
	if err != nil {
		return err
	}
	s.close = append(s.close, d.Close)
	from := map[string]map[string]string{}
	flat := false
	for _, t := range d.Tensors() {
		if m := ofModel.FindStringSubmatch(t.Name); m != nil {
			if from[m[1]] == nil {
				from[m[1]] = map[string]string{}
			}
			from[m[1]][m[2]] = t.Name
		}
		flat = flat || inBucket.MatchString(t.Name)
	}
	if err := s.common(dir, d); err != nil {
		return err
	}
	links := g.linksOf(d)
	if flat {
		return s.buckets(g, d, links)
	}
	for _, kind := range sortedKeys(from) {
		if kinds[kind] == checkpoint.Master {
			if err := copiesAre(d, from[kind]); err != nil {
				return err
			}
		}
		if err := s.add(g, kind, checkpoint.Renamed(d, from[kind]), dir, links); err != nil {
			return err
		}
	}
	return nil
}

// copiesAre holds float32 copies, by the keys of the weights, to be these: Megatron's fully_reshardable files
// have other numbers in them where the buckets of a rank were filled up (its param_index_map counts what the
// vectors leave out).
func copiesAre(d *DCP, of map[string]string) error {
	for _, key := range sortedKeys(of) {
		w, c := d.tensors[key], d.tensors[of[key]].info
		if w == nil || !slices.Equal(w.info.Shape, c.Shape) || len(c.Shape) == 0 || c.DType != checkpoint.F32 {
			continue // what the model's names do not take is refused with all of their names
		}
		if ok, err := copied(d, key, of[key]); err != nil {
			return err
		} else if !ok {
			return &checkpoint.Error{File: d.said, Tensor: of[key], Fault: checkpoint.Malformed,
				Why: "is not " + key + ", whose float32 copy it is: Megatron mixes up states of weights in " +
					"fully_reshardable files where a rank has several buckets",
				Try: "save it without --dist-ckpt-optim-fully-reshardable, or convert the weights alone with --no-optimizer"}
		}
	}
	return nil
}

// copied reports whether a tensor is the float32 copy of a weight of the same shape.
func copied(d *DCP, key, of string) (bool, error) {
	shape, layers := d.tensors[of].info.Shape, 1
	stacked := len(shape) > 2
	if stacked {
		layers, shape = shape[0], shape[1:]
	}
	var rest [][2]int
	for _, n := range shape[1:] {
		rest = append(rest, [2]int{0, n})
	}
	for n := range layers {
		var lead [][2]int
		if stacked {
			lead = [][2]int{{n, n + 1}}
		}
		ok, err := copies(d, key, lead, [2]int{0, shape[0]}, rest, func(rows [2]int, dst []byte) error {
			return d.ReadRanges(of, slices.Concat(lead, [][2]int{rows}, rest), dst)
		})
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// add takes in a kind by Megatron's keys.
func (s *States) add(g *gpt, kind string, src checkpoint.Source, said string, links []*composed) error {
	if _, err := g.match(src, said, links); err != nil {
		return fmt.Errorf("%s of the optimizer: %w", kind, err)
	}
	a, err := assemble(src, links)
	if err != nil {
		return fmt.Errorf("%s: %s of the optimizer: %w", said, kind, err)
	}
	s.Kinds[kinds[kind]] = a
	return nil
}

// common reads how far the training was: in common.pt, or among the objects of an optimizer in buckets.
func (s *States) common(dir string, d *DCP) error {
	a, root, err := saidBy(filepath.Join(dir, "common.pt"))
	if a == nil {
		return err
	}
	if n, ok := a.number(root.get("iteration")); ok {
		s.Step = int64(n)
	}
	if n, ok := a.step(root.get("optimizer"), 0); ok {
		s.Updates = n
		return nil
	}
	s.Updates = s.Step // an optimizer in buckets keeps it among objects that only Python reads
	return nil
}

// stepDepth bounds how deep in an optimizer's dictionary the number of updates is looked for.
const stepDepth = 6

// step is the number of updates that an optimizer's dictionary says anywhere.
func (a *archive) step(v any, depth int) (int64, bool) {
	if depth > stepDepth {
		return 0, false
	}
	switch x := v.(type) {
	case *dict:
		for _, key := range []string{"common_step", "step"} {
			if n, ok := a.number(x.get(key)); ok && n >= 0 && n < 1<<53 {
				return int64(n), true
			}
		}
		for _, v := range x.values {
			if n, ok := a.step(v, depth+1); ok {
				return n, true
			}
		}
	case *list:
		for _, v := range x.items {
			if n, ok := a.step(v, depth+1); ok {
				return n, true
			}
		}
	}
	return 0, false
}

// number is a number, or a tensor of one.
func (a *archive) number(v any) (float64, bool) {
	switch x := v.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, true
	}
	t, ok, err := a.view(v)
	if err != nil || !ok || t.size() != int64(t.dtype.Bits()/8) {
		return 0, false
	}
	raw := make([]byte, t.size())
	box := slices.Repeat([][2]int{{0, 1}}, len(t.shape))
	if t.read(a.r, box, raw) != nil {
		return 0, false
	}
	switch t.dtype {
	case checkpoint.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), true
	case checkpoint.I64:
		return float64(int64(binary.LittleEndian.Uint64(raw))), true
	}
	return 0, false
}

// ranks reads folders of ranks.
func (s *States) ranks(g *gpt, dir string) error {
	for _, kind := range []string{"exp_avg", "exp_avg_sq", masters} {
		l, err := openLegacyKind(g, dir, kind)
		if err != nil {
			if errors.Is(err, errNotKept) {
				continue
			}
			return err
		}
		s.close = append(s.close, l.d.Close)
		s.Updates = max(s.Updates, int64(l.updates))
		for _, a := range l.ranks { //lfvet:order all say the same
			root, _ := a.value.(*dict)
			if n, ok := a.number(root.get("iteration")); ok {
				s.Step = int64(n)
			}
		}
		if err := s.add(g, kind, l.d, dir, g.linksOf(l.d)); err != nil {
			return err
		}
	}
	return nil
}
