package family

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Adapter is a low-rank addition to one linear layer of the model as transformers builds it. Such a layer
// may be several of ours, as query, key and value are: their additions then stand one after another in A
// [rank in], and each in its own rows of B [out rank].
type Adapter struct {
	Module  string // name of the layer in transformers
	In, Out int
	Turned  bool        // the layer keeps its weight as [in out], as GPT-2's do
	Lora    *block.Lora // of each part
	Parts   []AdapterPart
}

// AdapterPart is the addition to one of our linear layers.
type AdapterPart struct {
	Name string   // of our layer
	Out  int      // its output features
	Rows [][2]int // where they lie in the module's, in order
	// First is what the addition began with, and takes away: PEFT's conversion of PiSSA to LoRA (subtract_mutated_init).
	First bool
}

// expertNames are the last words of names that PEFT, since transformers keeps experts in one tensor, takes
// for those of experts in every model that has some (peft 0.21, utils/transformers_weight_conversion.py).
var expertNames = map[string]bool{"gate": true, "gate_proj": true, "up_proj": true, "down_proj": true, "w1": true,
	"w2": true, "w3": true}

// PEFT lists the adapters of a run as PEFT has them, in the order of the model. A layer that is not a linear
// one in transformers, such as a convolution over patches, is an error, and so is
// one whose adapter PEFT would take for another's.
func (m *Model) PEFT(l *block.Lora) ([]Adapter, error) {
	whole := map[string]int{} // output features of modules
	turned := map[string]bool{}
	for _, p := range m.Params(nil) {
		if s := m.Source(p.Name); s.Turned {
			turned[s.Name] = true
		}
	}
	for _, info := range m.HFShapes() {
		if len(info.Shape) == 2 {
			whole[info.Name] = info.Shape[0]
			if turned[info.Name] {
				whole[info.Name] = info.Shape[1]
			}
		}
	}
	var out []Adapter
	at, outs := map[string]int{}, map[string]int{} // output features of layers that have adapters
	params := m.Params(l)
	for _, p := range params {
		if base, ok := strings.CutSuffix(p.Name, ".lora_B.weight"); ok {
			outs[base] = p.Shape[0]
		}
	}
	for _, p := range params {
		base, ok := strings.CutSuffix(p.Name, ".lora_A.weight")
		if !ok {
			continue
		}
		s, n := m.Source(base+".weight"), outs[base]
		if s.Tail != nil || s.Flat || s.Lead > 0 || whole[s.Name] == 0 {
			return nil, fmt.Errorf("lora.targets: %s is no linear layer of a checkpoint (%s), so that "+
				"PEFT has no adapter for it: leave it out, or set lora.merge=true to add it to the weights "+
				"that are exported", base, s.Name)
		}
		rows := s.Rows
		if rows == nil {
			rows = [][2]int{{0, n}}
		}
		name := s.module()
		if m.Spec.Mixes() && expertNames[name[strings.LastIndex(name, ".")+1:]] {
			return nil, fmt.Errorf("lora.targets: PEFT takes an adapter of %s for one of the experts, wherever "+
				"it lies in a model with experts, so that the adapter would be loaded as another: leave it "+
				"out, or set lora.merge=true to add it to the weights that are exported", base)
		}
		if _, ok := at[name]; !ok {
			at[name] = len(out)
			out = append(out, Adapter{Module: name, In: p.Shape[1], Out: whole[s.Name], Turned: s.Turned, Lora: l.Of(base)})
		}
		a := &out[at[name]]
		if one := l.Of(base); one.Rank != a.Lora.Rank || one.Alpha != a.Lora.Alpha {
			return nil, fmt.Errorf("lora.targets: %s and %s are one layer for PEFT, with one rank and alpha: give them the same by "+
				"lora.rank_pattern and lora.alpha_pattern, or set lora.merge=true", a.Parts[0].Name, base)
		}
		for _, first := range []bool{false, true}[:l.Terms()] {
			a.Parts = append(a.Parts, AdapterPart{Name: base, Out: n, Rows: rows, First: first})
		}
	}
	for _, a := range out {
		n := 0
		for _, p := range a.Parts {
			n += p.Out
		}
		if l.DoRA && n < a.Out {
			return nil, fmt.Errorf("lora.dora: %s is a part of %s, whose other rows would get norms in PEFT too: name all of its parts in "+
				"lora.targets, or set lora.merge=true", a.Parts[0].Name, a.Module)
		}
	}
	return out, nil
}

// Saved are the parameters that are trained whole beside adapters, their tensors in a file of PEFT's whose names begin with prefix,
// and what its configuration says of them. A tensor of which a parameter is a part is an error.
func (m *Model) Saved(l *block.Lora, prefix string) (all []*grad.Param, infos []checkpoint.Info, said map[string]json.RawMessage, err error) {
	var names []string
	said = map[string]json.RawMessage{}
	adapted := map[string]bool{}
	for _, p := range m.Adapters(l) {
		adapted[strings.TrimSuffix(p.Name, ".lora_A.weight")] = true
	}
	params, head := m.Params(nil), m.Source(HeadName+".weight").module()
	tied := !slices.ContainsFunc(params, func(p *grad.Param) bool { return p.Name == HeadName+".weight" })
	for _, p := range params {
		s := m.Source(p.Name)
		if !l.Saves(p.Name) {
			continue
		}
		if s.Tail != nil || s.Flat || s.Lead > 0 || s.Rows != nil || s.Turned {
			return nil, nil, nil, fmt.Errorf("lora.modules_to_save: %s is a part of %s in a checkpoint: leave it out, or set lora.merge=true", p.Name, s.Name)
		}
		if adapted[strings.TrimSuffix(p.Name, ".weight")] {
			return nil, nil, nil, fmt.Errorf("lora.modules_to_save: %s has an addition by lora.targets: name it in one of the two", p.Name)
		}
		module, end := s.module(), ".weight"
		if base, ok := strings.CutSuffix(module, ".bias"); ok {
			module, end = base, ".bias"
		}
		all, infos = append(all, p), append(infos, checkpoint.Info{Name: prefix + module + end, DType: "F32", Shape: p.Shape})
		names = append(names, module)
		if tied && p.Name == EmbedName+".weight" { // PEFT parts the two without, or where it does not know the table's name
			all, infos = append(all, p), append(infos, checkpoint.Info{Name: prefix + head + end, DType: "F32", Shape: p.Shape})
			names, said["ensure_weight_tying"] = append(names, head), json.RawMessage("true")
		}
	}
	if len(l.Tokens) > 0 {
		table := m.Source(EmbedName + ".weight")
		if slices.Contains(names, table.module()) {
			return nil, nil, nil, fmt.Errorf("lora.trainable_tokens: lora.modules_to_save trains the whole of %s: name it in one of the two", table.Name)
		}
		shape := []int{len(l.Tokens), m.Spec.Hidden}
		all = append(all, &grad.Param{Name: TokenRows, Shape: shape})
		infos = append(infos, checkpoint.Info{Name: prefix + table.module() + checkpoint.TokenRows, DType: "F32", Shape: shape})
		said["trainable_token_indices"], _ = json.Marshal(l.Tokens) // numbers always have a form
	}
	if len(names) > 0 {
		text, _ := json.Marshal(slices.Compact(names)) // strings always have a form
		said["modules_to_save"] = text
	}
	return all, infos, said, nil
}

// Modules are the tensors of a checkpoint that have the weights of transformers' modules, that of a tied head included,
// and which of them are kept as [in out].
func (m *Model) Modules() (names map[string]string, turned map[string]bool) {
	names, turned = map[string]string{}, map[string]bool{}
	head := m.Source(HeadName + ".weight")
	names[head.module()] = head.Name
	for _, p := range m.Params(nil) {
		s := m.Source(p.Name)
		names[s.module()], turned[s.Name] = s.Name, s.Turned
	}
	return names, turned
}

// module is the name of the layer that a weight belongs to.
func (s Source) module() string {
	if s.Module != "" {
		return s.Module
	}
	return strings.TrimSuffix(s.Name, ".weight")
}

// Tensors are the adapter's in a file whose names begin with prefix: A and B of all parts, and DoRA's magnitudes.
func (a Adapter) Tensors(prefix string) []checkpoint.Info {
	n := a.Lora.Rank * len(a.Parts)
	all := []checkpoint.Info{{Name: prefix + a.Module + ".lora_A.weight", DType: "F32", Shape: []int{n, a.In}},
		{Name: prefix + a.Module + ".lora_B.weight", DType: "F32", Shape: []int{a.Out, n}}}
	if a.Lora.DoRA {
		all = append(all, checkpoint.Info{Name: prefix + a.Module + block.Magnitude, DType: "F32", Shape: []int{a.Out}})
	}
	return all
}

// Fill puts the parts together, in the order of Tensors: read gives A [r in], B [out r] and magnitudes [out] of one of our layers.
func (a Adapter) Fill(read func(name string, shape []int, dst []float32) error) ([][]float32, error) {
	r := a.Lora.Rank
	n := r * len(a.Parts)
	down, up, size := make([]float32, n*a.In), make([]float32, a.Out*n), make([]float32, a.Out)
	for i, p := range a.Parts {
		b, m := make([]float32, p.Out*r), make([]float32, p.Out)
		names := [2]string{".lora_A.weight", ".lora_B.weight"}
		if p.First {
			names = block.First
		}
		err := errors.Join(read(p.Name+names[0], []int{r, a.In}, down[i*r*a.In:(i+1)*r*a.In]),
			read(p.Name+names[1], []int{p.Out, r}, b))
		for k := 0; p.First && k < len(b); k++ {
			b[k] = -b[k]
		}
		if err == nil && a.Lora.DoRA {
			err = read(p.Name+block.Magnitude, []int{p.Out}, m)
		}
		if err != nil {
			return nil, err
		}
		at := 0
		for _, rows := range p.Rows {
			for row := rows[0]; row < rows[1]; row++ {
				copy(up[row*n+i*r:row*n+(i+1)*r], b[at*r:(at+1)*r])
				size[row] = m[at]
				at++
			}
		}
	}
	return [][]float32{down, up, size}[:len(a.Tensors(""))], nil
}

// Split is the inverse of Fill: it enters A [r in] and B [out r] of each of our layers under their parameters' names.
func (a Adapter) Split(down, up []float32, to map[string][]float32) {
	r := a.Lora.Rank
	n := r * len(a.Parts)
	for i, p := range a.Parts {
		to[p.Name+".lora_A.weight"] = slices.Clone(down[i*r*a.In : (i+1)*r*a.In])
		var b []float32
		for _, rows := range p.Rows {
			for row := rows[0]; row < rows[1]; row++ {
				b = append(b, up[row*n+i*r:row*n+(i+1)*r]...)
			}
		}
		to[p.Name+".lora_B.weight"] = b
	}
}

// AdapterConfig describes adapters of rank r to PEFT. The layers are named in full: patterns of a run are
// not PEFT's, and the last part of a name may stand for other layers in transformers. A module of several
// parts has a rank, and so an alpha, as many times as large.
func AdapterConfig(as []Adapter, l *block.Lora) checkpoint.AdapterConfig {
	c := checkpoint.AdapterConfig{R: l.Rank, Alpha: l.Alpha, Dropout: l.Dropout, RSLoRA: l.Root, Ranks: map[string]int{},
		Alphas: map[string]float64{}}
	of := func(l *block.Lora, parts int) (rank int, alpha float64) {
		whole := *l
		whole.Rank, whole.Alpha = parts*l.Rank, float64(parts)*l.Alpha
		return whole.Rank, whole.Alpha * (l.Scale() / whole.Scale()) // with a root not so many times as large
	}
	c.R, c.Alpha = of(l, l.Terms())
	for _, a := range as {
		c.Targets.Names = append(c.Targets.Names, a.Module)
		key := strings.ReplaceAll(a.Module, ".", `\.`) // PEFT reads keys as regular expressions
		if n := len(a.Parts); n > 1 || a.Lora.Rank != l.Rank || a.Lora.Alpha != l.Alpha {
			if rank, alpha := of(a.Lora, n); rank != c.R || alpha != c.Alpha {
				c.Ranks[key], c.Alphas[key] = rank, alpha
			}
		}
	}
	slices.Sort(c.Targets.Names)
	c.Rest = map[string]json.RawMessage{}
	if len(as) > 0 && as[0].Turned { // all of a model are, or none
		c.Rest["fan_in_fan_out"] = json.RawMessage("true")
	}
	if l.DoRA {
		c.Rest["use_dora"] = json.RawMessage("true")
	}
	return c
}

// InTransformers gives layers the names that they have in transformers, where prefixes differ from the
// checkpoint's: pairs of the checkpoint's and transformers', of which the first that fits is taken.
func InTransformers(source func(string) Source, prefixes ...[2]string) func(string) Source {
	return func(name string) Source {
		s := source(name)
		for _, p := range prefixes {
			if rest, ok := strings.CutPrefix(s.Name, p[0]); ok {
				if s.Module == "" {
					s.Module = strings.TrimSuffix(rest, ".weight")
				}
				s.Module = p[1] + s.Module
				break
			}
		}
		return s
	}
}
