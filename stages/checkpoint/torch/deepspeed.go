package torch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// DeepSpeed's checkpoints under ZeRO: each rank has its part of flat vectors of float32 weights and of what
// the optimizer keeps, and a file of the model says in which order the parameters lie in them; and the
// universal form, a folder for each parameter.

const (
	modelStates   = "mp_rank_00_model_states.pt"
	universalDir  = "zero"
	universalName = "fp32.pt"
)

var (
	optimStates = regexp.MustCompile(`^(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$`)
	zero3States = regexp.MustCompile(`^(?:bf16_)?zero_pp_rank_0_mp_rank_00_model_states\.pt$`)
)

// DeepSpeedDir is the directory of DeepSpeed's ZeRO or universal form at a path: the path itself, or the
// one below that its latest or latest_universal names; "" where there is none.
func DeepSpeedDir(path string) string {
	if isDeepSpeed(path) {
		return path
	}
	for _, file := range []string{"latest_universal", "latest"} {
		text, err := os.ReadFile(filepath.Join(path, file))
		tag := strings.TrimSpace(string(text))
		if err == nil && tag == filepath.Base(tag) && filepath.IsLocal(tag) && isDeepSpeed(filepath.Join(path, tag)) {
			return filepath.Join(path, tag)
		}
	}
	return ""
}

func isDeepSpeed(dir string) bool {
	found, err := filepath.Glob(filepath.Join(dir, "*zero_pp_rank_*_optim_states.pt"))
	if err == nil && len(found) > 0 {
		return true
	}
	found, err = filepath.Glob(filepath.Join(dir, universalDir, "*", universalName))
	return err == nil && len(found) > 0
}

// OpenDeepSpeed opens a directory of DeepSpeed: the float32 weights under the names of the model, and what
// AdamW keeps of each, which are closed with them.
func OpenDeepSpeed(dir string) (weights checkpoint.Source, st *States, err error) {
	z := &zero{dir: dir, files: map[string]*os.File{}}
	st = &States{Kinds: map[string]checkpoint.Source{}}
	st.Closing(z.Close)
	kinds := []string{"fp32", "exp_avg", "exp_avg_sq"}
	sources := map[string]*flatSource{}
	for _, kind := range kinds {
		sources[kind] = &flatSource{z: z, infos: map[string]checkpoint.Info{}, of: map[string][]segment{}}
	}
	if _, missing := os.Stat(filepath.Join(dir, universalDir)); missing == nil {
		err = z.universal(sources)
	} else {
		err = z.ranks(sources)
	}
	if err != nil {
		return nil, nil, errors.Join(err, z.Close())
	}
	for kind, name := range map[string]string{"exp_avg": checkpoint.ExpAvg,
		"exp_avg_sq": checkpoint.ExpAvgSq} { //lfvet:order each by itself
		if len(sources[kind].infos) > 0 {
			st.Kinds[name] = sources[kind]
		}
	}
	st.Updates, st.Step = z.updates, z.steps
	return sources["fp32"], st, nil
}

// zero is a directory that is being read.
type zero struct {
	dir            string
	files          map[string]*os.File
	updates, steps int64
}

// Close closes the files.
func (z *zero) Close() error {
	var errs []error
	for _, name := range sortedKeys(z.files) {
		errs = append(errs, z.files[name].Close())
	}
	z.files = map[string]*os.File{}
	return errors.Join(errs...)
}

func (z *zero) fault(file, tensor string, f checkpoint.Fault, format string, a ...any) error {
	return &checkpoint.Error{File: filepath.Join(z.dir, file), Tensor: tensor, Fault: f, Why: fmt.Sprintf(format, a...)}
}

// archive opens a file of the directory.
func (z *zero) archive(name string) (*archive, *dict, error) {
	path := filepath.Join(z.dir, name)
	a, f, err := opened(path, func(g global) bool {
		return known(g) || g.module == "deepspeed" || strings.HasPrefix(g.module, "deepspeed.") ||
			g.module == "builtins" && (g.name == "dict" || g.name == "set") || g == global{"collections", "defaultdict"}
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, z.fault(name, "", checkpoint.Missing, "the file is not there")
	} else if err != nil {
		return nil, nil, err
	}
	z.files[name] = f
	d, _ := a.value.(*dict)
	if d == nil {
		return nil, nil, a.fault("", "is no dictionary")
	}
	return a, d, nil
}

// zeroRank is what a rank's file has: vectors of each kind.
type zeroRank struct {
	file string
	a    *archive
	flat map[string][]*view
	opt  *dict
}

// ranks reads the files of all ranks.
func (z *zero) ranks(out map[string]*flatSource) error {
	entries, err := os.ReadDir(z.dir)
	if err != nil {
		return err
	}
	names, model := map[int]string{}, modelStates
	for _, e := range entries {
		if zero3States.MatchString(e.Name()) {
			model = e.Name()
		}
		m := optimStates.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if strings.Trim(m[2], "0") != "" {
			return z.fault(e.Name(), "", checkpoint.Malformed, "is of several ranks of tensor parallelism, which "+
				"are not put together: make the universal form of it by DeepSpeed's ds_to_universal.py")
		}
		n, err := strconv.Atoi(m[1])
		if err != nil || names[n] != "" || n >= ranksMax {
			return z.fault(e.Name(), "", checkpoint.Extra, "is of a rank that has a file already, or of none")
		}
		names[n] = e.Name()
	}
	ranks := make([]*zeroRank, len(names))
	for i := range ranks {
		if names[i] == "" {
			return z.fault(fmt.Sprintf("zero_pp_rank_%d_mp_rank_00_optim_states.pt", i), "", checkpoint.Missing,
				"the directory has files of %d ranks, and not this one's", len(names))
		}
		if ranks[i], err = z.rank(names[i]); err != nil {
			return err
		}
	}
	a, d, err := z.archive(model)
	if err != nil {
		return err
	}
	if n, ok := a.number(d.get("global_steps")); ok {
		z.steps = int64(n)
	}
	if n, ok := ranks[0].a.step(ranks[0].opt, 0); ok {
		z.updates = n
	}
	if n, ok := a.number(d.get("dp_world_size")); ok && int(n) != len(ranks) {
		return z.fault(model, "", checkpoint.Missing, "is of %d ranks of data parallelism, %d have files",
			int(n), len(ranks))
	}
	groups, err := z.shapes(a, d)
	if err != nil {
		return err
	}
	for _, kind := range sortedKeys(out) {
		s := out[kind]
		if ranks[0].opt.get("fp32_flat_groups") != nil {
			err = z.third(s, kind, groups, ranks)
		} else {
			err = z.second(s, kind, groups, ranks)
		}
		if err != nil {
			return err
		}
	}
	return z.rest(a, d, out)
}

// rank reads a rank's file.
func (z *zero) rank(name string) (*zeroRank, error) {
	a, d, err := z.archive(name)
	if err != nil {
		return nil, err
	}
	r := &zeroRank{file: name, a: a, flat: map[string][]*view{}}
	if r.opt, _ = d.get("optimizer_state_dict").(*dict); r.opt == nil {
		return nil, a.fault("", "has no optimizer_state_dict")
	}
	take := func(kind string, v any) error {
		t, ok, err := a.view(v)
		if err != nil || !ok || len(t.shape) != 1 || t.dtype != checkpoint.F32 {
			return a.fault("", fmt.Sprintf("%s of a group is no vector of float32 (%v)", kind, err))
		}
		r.flat[kind] = append(r.flat[kind], t)
		return nil
	}
	flat, ok := r.opt.get("single_partition_of_fp32_groups").(*list)
	if !ok {
		flat, ok = r.opt.get("fp32_flat_groups").(*list)
	}
	if !ok {
		return nil, a.fault("", "has neither single_partition_of_fp32_groups nor fp32_flat_groups")
	}
	for _, v := range flat.items {
		if err := take("fp32", v); err != nil {
			return nil, err
		}
	}
	inner, _ := r.opt.get("base_optimizer_state").(*dict)
	if inner == nil {
		inner, _ = r.opt.get("optimizer_state_dict").(*dict)
	}
	if inner == nil {
		return r, nil // weights alone
	}
	states, _ := inner.get("state").(*dict)
	for i := range flat.items {
		s, _ := states.of(int64(i)).(*dict)
		if s == nil {
			return nil, a.fault("", fmt.Sprintf("the optimizer has no state of group %d", i))
		}
		for _, kind := range []string{"exp_avg", "exp_avg_sq"} {
			if v := s.get(kind); v != nil {
				if err := take(kind, v); err != nil {
					return nil, err
				}
			}
		}
	}
	return r, nil
}

// zeroParam is a parameter of a group.
type zeroParam struct {
	name  string
	shape []int
	count int64
}

// shapes are the parameters of each group, in order.
func (z *zero) shapes(a *archive, d *dict) (out [][]zeroParam, err error) {
	groups, ok := d.get("param_shapes").(*list)
	if !ok {
		return nil, a.fault("", "has no param_shapes: it is of before DeepSpeed 0.3.16")
	}
	seen := map[string]bool{}
	for _, g := range groups.items {
		shapes, _ := g.(*dict)
		if o, is := g.(*object); is && o.class == orderedDict {
			shapes, _ = o.state.(*dict)
		}
		if shapes == nil {
			return nil, a.fault("", "param_shapes of a group is no dictionary")
		}
		var list []zeroParam
		for i, k := range shapes.keys {
			name, ok := k.(string)
			size, ok2 := ints(shapes.values[i])
			if !ok || !ok2 || len(size) > axesMax || seen[name] {
				return nil, a.fault(name, "is there twice, or its shape is none")
			}
			seen[name] = true
			p := zeroParam{name: name, count: 1}
			for _, n := range size {
				if n < 0 || n > 1<<40 || p.count > 1<<50/max(1, n) {
					return nil, a.fault(name, fmt.Sprintf("shape %v", size))
				}
				p.shape, p.count = append(p.shape, int(n)), p.count*n
			}
			list = append(list, p)
		}
		out = append(out, list)
	}
	return out, nil
}

// second puts together what ZeRO 1 and 2 have shared out: of each group one vector, cut among the ranks.
func (z *zero) second(s *flatSource, kind string, groups [][]zeroParam, ranks []*zeroRank) error {
	if kind != "fp32" && len(ranks[0].flat[kind]) == 0 {
		return nil
	}
	paddings, _ := ranks[0].opt.get("param_alignment_paddings").(*list)
	for g, params := range groups {
		var all []segment
		for _, r := range ranks {
			if len(r.flat[kind]) != len(groups) {
				return z.fault(r.file, "", checkpoint.Malformed, "%d vectors of %s, the model has %d groups",
					len(r.flat[kind]), kind, len(groups))
			}
			all = append(all, segment{r.flat[kind][g], r.a, 0, int64(r.flat[kind][g].shape[0])})
		}
		var pads []any
		if paddings != nil && g < len(paddings.items) {
			if l, ok := paddings.items[g].(*list); ok && len(l.items) == len(params) {
				pads = l.items
			}
		}
		at := int64(0)
		for i, p := range params {
			if err := s.put(z, p, cutSegments(all, at, at+p.count), kind); err != nil {
				return err
			}
			if err := z.mapped(ranks, g, p, at); err != nil {
				return err
			}
			if at += p.count; pads != nil {
				n, _ := pads[i].(int64)
				at += max(0, n)
			}
		}
		if left := lengthOf(all) - at; left < 0 ||
			left >= int64(4*len(ranks)) { // what is filled up to share it out
			return z.fault(ranks[0].file, "", checkpoint.Misshapen, "group %d has %d elements, its parameters %d",
				g, lengthOf(all), at)
		}
	}
	return nil
}

// mapped holds a parameter's place to what ranks say of it, where they do.
func (z *zero) mapped(ranks []*zeroRank, group int, p zeroParam, at int64) error {
	from := int64(0)
	for _, r := range ranks {
		size := int64(r.flat["fp32"][group].shape[0])
		all, _ := r.opt.get("param_slice_mappings").(*list)
		if all != nil && group < len(all.items) {
			d, _ := all.items[group].(*dict)
			if o, is := all.items[group].(*object); is {
				d, _ = o.state.(*dict)
			}
			if d != nil {
				start, count, ok := fragment(d.get(p.name))
				lo, hi := max(at, from), min(at+p.count, from+size)
				if ok != (lo < hi) || ok && (start != lo-from || count != hi-lo) {
					return z.fault(r.file, p.name, checkpoint.Malformed, "lies elsewhere than in the order of "+
						"param_shapes: round_robin_gradients are not read; make the universal form of it")
				}
			}
		}
		from += size
	}
	return nil
}

// fragment reads a fragment_address.
func fragment(v any) (start, count int64, ok bool) {
	o, is := v.(*object)
	if !is {
		return 0, 0, false
	}
	d, _ := o.state.(*dict)
	if d == nil {
		if len(o.args) != 2 {
			return 0, 0, false
		}
		n, ok1 := o.args[0].(int64)
		at, ok2 := o.args[1].(int64)
		return at, n, ok1 && ok2
	}
	n, ok1 := d.get("numel").(int64)
	at, ok2 := d.get("start").(int64)
	return at, n, ok1 && ok2
}

// third puts together what ZeRO 3 has shared out: of each parameter every rank has as many elements, the
// last ones filled up, and of all parameters one vector, which is in several tensors.
func (z *zero) third(s *flatSource, kind string, groups [][]zeroParam, ranks []*zeroRank) error {
	if kind != "fp32" && len(ranks[0].flat[kind]) == 0 {
		return nil
	}
	vectors := make([][]segment, len(ranks))
	for i, r := range ranks {
		for _, v := range r.flat[kind] {
			vectors[i] = append(vectors[i], segment{v, r.a, 0, int64(v.shape[0])})
		}
		if lengthOf(vectors[i]) != lengthOf(vectors[0]) {
			return z.fault(r.file, "", checkpoint.Misshapen, "%d elements of %s, rank 0 has %d", lengthOf(vectors[i]),
				kind, lengthOf(vectors[0]))
		}
	}
	at, n := int64(0), int64(len(ranks))
	for _, p := range slices.Concat(groups...) {
		each := (p.count + n - 1) / n
		var all []segment
		for _, v := range vectors {
			all = append(all, cutSegments(v, at, at+each)...)
		}
		if err := s.put(z, p, cutSegments(all, 0, p.count), kind); err != nil {
			return err
		}
		at += each
	}
	if at != lengthOf(vectors[0]) {
		return z.fault(ranks[0].file, "", checkpoint.Misshapen, "%d elements of %s on a rank, its parameters take %d",
			lengthOf(vectors[0]), kind, at)
	}
	return nil
}

// rest adds parameters that did not learn, and other names of those that are shared; of their moments there are none.
func (z *zero) rest(a *archive, d *dict, out map[string]*flatSource) error {
	s := out["fp32"]
	if frozen, _ := d.get("frozen_param_shapes").(*dict); frozen != nil && len(frozen.keys) > 0 {
		return a.fault("", fmt.Sprintf("%d parameters were not trained, and are not put together: make the universal "+
			"form of it", len(frozen.keys)))
	}
	if shared, _ := d.get("shared_params").(*dict); shared != nil {
		for i, k := range shared.keys {
			name, _ := k.(string)
			of, _ := shared.values[i].(string)
			info, ok := s.infos[of]
			if !ok || name == "" || s.infos[name].Name != "" {
				continue
			}
			info.Name = name
			s.infos[name], s.of[name] = info, s.of[of]
		}
	}
	return nil
}
