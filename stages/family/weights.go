package family

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
)

// Weights maps a model's logical parameters to the tensors of a Hugging Face checkpoint, both ways.
type Weights struct {
	m     *Model
	infos map[string]checkpoint.Info // Hugging Face tensors by name
	src   checkpoint.Source
	path  string
	// Source is nil for the model's own; part is the component that the checkpoint has, "" for all.
	source func(name string) Source
	part   string
}

// HFShapes lists the Hugging Face tensors that the model consists of; DType is left open. Adapters are no part of them.
func (m *Model) HFShapes() []checkpoint.Info { return Shapes(m.Params(nil), m.Source) }

// Shapes lists the tensors that parameters lie in, of which source says where; DType is left open.
func Shapes(params []*grad.Param, source func(string) Source) []checkpoint.Info {
	at := map[string]int{}
	var out []checkpoint.Info
	for _, p := range params {
		s := source(p.Name)
		if s.Stack {
			out = append(out, s.stacked(p)...)
			continue
		}
		i, ok := at[s.Name]
		if !ok {
			i = len(out)
			at[s.Name] = i
			out = append(out, checkpoint.Info{Name: s.Name, Shape: s.shape(p.Shape)})
		}
		if s.Within[1] > 0 {
			axis := 1
			if s.Turned {
				axis = 2
			}
			out[i].Shape[axis] = max(out[i].Shape[axis], s.Within[1])
		}
		for _, r := range s.Rows {
			axis := s.Lead
			if s.Turned {
				axis++
			}
			out[i].Shape[axis] = max(out[i].Shape[axis], r[1])
		}
	}
	return out
}

// ignorable reports tensors that published checkpoints carry besides the model's parameters: tables that follow from
// the configuration, a head that repeats a tied embedding, and further heads of a run that does not use them.
func (m *Model) ignorable(name string) bool {
	return strings.HasSuffix(name, "rotary_emb.inv_freq") || strings.HasSuffix(name, ".attn.masked_bias") ||
		strings.HasSuffix(name, ".attn.bias") || m.Spec.MTP == 0 && (strings.HasPrefix(name, FurtherName) ||
		m.Spec.Further > 0 && strings.HasPrefix(name, "mtp.")) || m.Spec.Further > 0 && behind(name, m.Spec.Layers,
		m.Spec.Further) && (m.Spec.MTP == 0 || repeats(name)) || !m.valued() && name == scoreParam ||
		m.Beside != nil && m.Beside(name) || (m.Spec.Tie || m.Headless()) && name == m.Source(HeadName+".weight").Name
}

// repeats reports whether a tensor of a layer behind the model's is the model's own embedding or head once more.
func repeats(name string) bool {
	return strings.HasSuffix(name, ".embed_tokens.weight") || strings.HasSuffix(name, ".shared_head.head.weight")
}

// behind reports whether a tensor is of one of so many layers behind the model's.
func behind(name string, layers, further int) bool {
	rest, _ := strings.CutPrefix(name, "model.layers.")
	number, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	return err == nil && n >= layers && n < layers+further
}

// settle takes the other layout for the model if that is what the file has: an export then has it too, as
// the configuration that comes from the same directory.
func (m *Model) settle(infos map[string]checkpoint.Info) {
	for _, b := range m.Beginnings {
		if begins(infos, b[1]) && !begins(infos, b[0]) {
			m.Source = begun(m.Source, b)
		}
	}
	if m.Other == nil {
		return
	}
	// the layer for a further token is published in either layout, whatever that of the others is
	var layers, ahead []*grad.Param
	for _, p := range m.Params(nil) {
		if strings.HasPrefix(p.Name, FurtherName) {
			ahead = append(ahead, p)
		} else {
			layers = append(layers, p)
		}
	}
	turn, alone := m.inOther(layers, infos), m.inOther(ahead, infos)
	if turn {
		m.Source, m.Other = m.Other, m.Source
	}
	if len(ahead) == 0 || alone == turn {
		return
	}
	but := func(layers, ahead func(string) Source) func(string) Source {
		return func(name string) Source {
			if strings.HasPrefix(name, FurtherName) {
				return ahead(name)
			}
			return layers(name)
		}
	}
	m.Source, m.Other = but(m.Source, m.Other), but(m.Other, m.Source)
}

// begins reports whether a tensor's name begins so.
func begins(infos map[string]checkpoint.Info, with string) bool {
	for name := range infos {
		if strings.HasPrefix(name, with) {
			return true
		}
	}
	return false
}

// begun gives tensors the second beginning of a pair in place of the first.
func begun(source func(string) Source, b [2]string) func(string) Source {
	return func(name string) Source {
		s := source(name)
		if rest, ok := strings.CutPrefix(s.Name, b[0]); ok {
			s.Name = b[1] + rest
		}
		return s
	}
}

// inOther reports whether parameters lie in a checkpoint as the model's other layout says.
func (m *Model) inOther(params []*grad.Param, infos map[string]checkpoint.Info) bool {
	for _, p := range params { // layouts differ in the tower, or in the experts
		own, other := m.Source(p.Name).Names(p)[0], m.Other(p.Name).Names(p)[0]
		if own == other && m.Source(p.Name).Turned == m.Other(p.Name).Turned {
			continue
		}
		if own == other { // matrices as [in out] or as [out in], told by their shape
			has := func(source func(string) Source) bool {
				for _, t := range Shapes(params, source) {
					if t.Name == own {
						return slices.Equal(t.Shape, infos[own].Shape)
					}
				}
				return false
			}
			return has(m.Other) && !has(m.Source)
		}
		_, hasOwn := infos[own]
		_, has := infos[other]
		return has && !hasOwn
	}
	return false
}

// OpenWeights checks that every tensor of src is a parameter of the model and the other way round, in name and shape;
// each difference is a *checkpoint.Error. A model of which checkpoints come in two layouts takes that of src.
func (m *Model) OpenWeights(src checkpoint.Source, path string) (*Weights, error) {
	src, err := quant.Dequantized(src, path)
	if err != nil {
		return nil, err
	}
	w := &Weights{m: m, infos: map[string]checkpoint.Info{}, src: src, path: path}
	for _, t := range src.Tensors() {
		w.infos[t.Name] = t
	}
	m.settle(w.infos)
	var have []checkpoint.Info
	want := m.HFShapes()
	for _, t := range src.Tensors() {
		if !m.ignorable(t.Name) || slices.ContainsFunc(want, func(i checkpoint.Info) bool { return i.Name == t.Name }) {
			have = append(have, t)
		}
	}
	if _, trained := w.infos[scoreParam]; m.valued() && !trained { // it is drawn
		want = slices.DeleteFunc(want, func(i checkpoint.Info) bool { return i.Name == scoreParam })
	}
	return w, checkpoint.Match(path, m.without(want, have), have)
}

// without are those of the tensors that are wanted which a checkpoint has to have: what an expert of actions is made of
// is drawn where it has none of that.
func (m *Model) without(want, have []checkpoint.Info) []checkpoint.Info {
	drawn := func(i checkpoint.Info) bool { return strings.HasPrefix(i.Name, m.drawn) }
	if m.drawn == "" || slices.ContainsFunc(have, drawn) {
		return want
	}
	return slices.DeleteFunc(want, drawn)
}

// SourceDType is the type in which the checkpoint keeps one of its own tensors, "" for one that it does not have. For
// "" it is the type of the first parameter. One that is quantized there has the type that its publishers convert it to.
func (w *Weights) SourceDType(hf string) string {
	if hf == "" {
		hf = w.m.HFShapes()[0].Name
	}
	if quant.QuantizedAt(w.src, hf) {
		return string(checkpoint.BF16)
	}
	if d := w.infos[hf].DType; d != checkpoint.Bool && d != checkpoint.I64 {
		return string(d)
	}
	return string(checkpoint.F32)
}

// Read fills dst with a region of a logical parameter as float32. It reports false for an adapter, which the
// checkpoint of a base model does not have, and for a choice, which no model has.
func (w *Weights) Read(p *grad.Param, g Region, dst []float32) (bool, error) {
	if strings.Contains(p.Name, ".lora_") || p.IsState() {
		return false, nil
	}
	if w.part != "" && w.m.Component(p.Name) != w.part {
		return false, nil
	}
	s := w.from(p.Name)
	if s.cubic(p) {
		return true, w.readCube(p, g, s, dst)
	}
	info, ok := w.infos[s.Name]
	if !ok && (w.part != "" || p.Name == scoreParam || w.m.drawn != "" && strings.HasPrefix(p.Name, w.m.drawn)) {
		return false, nil // a head that predicts further tokens, or scores or actions of a model that has none yet
	}
	size, widen, err := w.numbers(p, s.Name)
	if err != nil {
		return false, err
	}
	row, rows, col, cols := g.Box(p)
	if s.Rows == nil && w.grows(p.Name) {
		rows = max(0, min(rows, info.Shape[0]-row))
	}
	for _, r := range s.cover(row, row+rows) {
		ranges := s.ranges(r, p.Shape, col, cols)
		raw := make([]byte, r.n*cols*size)
		if err := w.src.ReadRanges(s.Name, ranges, raw); err != nil {
			return false, err
		}
		at := (r.logical - row) * cols
		part := dst[at : at+r.n*cols]
		if !s.Turned {
			widen(raw, part)
			continue
		}
		turned := make([]float32, len(part))
		widen(raw, turned)
		turn(part, turned, cols, r.n)
	}
	return true, nil
}

// from tells where a parameter lies in the checkpoint, by the format that was found or else by the family's own.
func (w *Weights) from(param string) Source {
	if w.source != nil {
		return w.source(param)
	}
	return w.m.Source(param)
}

// grows reports whether a part's checkpoint may have fewer rows than the model: tokens were added to its vocabulary.
func (w *Weights) grows(param string) bool {
	return w.part == Foundation && (param == EmbedName+".weight" || param == HeadName+".weight")
}

// OpenPart takes a component's parameters alone from src, a checkpoint of that component by itself or of a
// larger model that has it below a prefix. All of them must be there in name and shape, except that the
// vocabulary may have fewer rows: Read then leaves those that are missing as they are, and everything that
// is not of the component. Each difference is a *checkpoint.Error.
func (m *Model) OpenPart(component string, src checkpoint.Source, path string) (*Weights, error) {
	src, err := quant.Dequantized(src, path)
	if err != nil {
		return nil, err
	}
	var params []*grad.Param
	for _, p := range m.Params(nil) {
		if m.Component(p.Name) == component && !strings.Contains(p.Name, "mtp") {
			params = append(params, p)
		}
	}
	if len(params) == 0 || len(m.Alone[component]) == 0 {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Extra, Why: "the model has no " + component}
	}
	for _, layout := range m.Alone[component] {
		probe := layout(params[0].Name).Name
		prefix, found := "", false
		for _, t := range src.Tensors() {
			if rest, ok := strings.CutSuffix(t.Name, probe); ok &&
				(rest == "" || strings.HasSuffix(rest, ".")) && (!found || len(rest) < len(prefix)) {
				prefix, found = rest, true
			}
		}
		if !found {
			continue
		}
		w := &Weights{m: m, infos: map[string]checkpoint.Info{}, src: src, path: path, part: component,
			source: func(name string) Source {
				s := layout(name)
				s.Name = prefix + s.Name
				return s
			}}
		for _, t := range src.Tensors() {
			w.infos[t.Name] = t
		}
		want := Shapes(params, w.source)
		var have []checkpoint.Info
		for i, t := range want {
			info, ok := w.infos[t.Name]
			if !ok {
				continue
			}
			for _, p := range []string{EmbedName, HeadName} {
				if w.grows(p+".weight") && w.source(p+".weight").Name == t.Name && len(info.Shape) == len(t.Shape) {
					want[i].Shape[0] = min(t.Shape[0], info.Shape[0])
				}
			}
			have = append(have, info)
		}
		return w, checkpoint.Match(path, want, have)
	}
	return nil, &checkpoint.Error{File: path, Tensor: m.Alone[component][0](params[0].Name).Name,
		Fault: checkpoint.Missing, Why: "the model's " + component + " needs it, here or below a prefix"}
}

// shape is that of the tensor in the file, for a logical one.
func (s Source) shape(logical []int) []int {
	out := make([]int, s.Lead, s.Lead+len(logical)+len(s.Tail))
	for i := range out {
		out[i] = 1
	}
	if s.Of > 0 {
		out[s.Lead-1] = s.Of
	}
	if s.Flat {
		return append(out, logical[1:]...)
	}
	if s.Step > 0 {
		logical = slices.Clone(logical)
		logical[1] *= s.Step
	}
	if s.Turned && len(logical) == 3 {
		return append(out, logical[0], logical[2], logical[1])
	}
	if s.Turned {
		return append(out, logical[1], logical[0])
	}
	out = append(out, logical[0])
	if s.Tail != nil {
		return append(out, s.Tail...)
	}
	return append(out, logical[1:]...)
}

// ranges are the half-open intervals of a run of rows of a logical tensor of a shape, and of columns [col, col+cols),
// in the file; a tensor with other axes there is never cut along its columns. Axes behind the second are whole,
// and columns count them.
func (s Source) ranges(r span, shape []int, col, cols int) (out [][2]int) {
	for range s.Lead {
		out = append(out, [2]int{s.Nth, s.Nth + 1})
	}
	if s.Flat {
		return append(out, [][2]int{{col, col + cols}}[:min(1, len(shape)-1)]...) // none of a scalar
	}
	if s.Turned {
		return append(out, [2]int{col, col + cols}, [2]int{r.file, r.file + r.n})
	}
	out = append(out, [2]int{r.file, r.file + r.n})
	switch {
	case s.Tail != nil:
		for _, n := range s.Tail {
			out = append(out, [2]int{0, n})
		}
	case len(shape) > 1:
		taps := max(1, tensor.Len(shape[2:]))
		out = append(out, [2]int{col / taps, (col + cols) / taps})
		for _, n := range shape[2:] {
			out = append(out, [2]int{0, n})
		}
	}
	return out
}

// turn sets dst to the transpose of src, which has so many rows and columns.
func turn(dst, src []float32, rows, cols int) {
	for i := range rows {
		for k := range cols {
			dst[k*rows+i] = src[i*cols+k]
		}
	}
}

// span is a run of rows that are neighbours in the file and in the logical tensor.
type span struct{ logical, file, n int }

// cover lists where logical rows [from, to) lie in the file.
func (s Source) cover(from, to int) (out []span) {
	if from >= to {
		return nil
	}
	if s.Rows == nil {
		return []span{{from, from, to - from}}
	}
	at := 0
	for _, r := range s.Rows {
		lo, hi := max(from, at), min(to, at+r[1]-r[0])
		if lo < hi {
			out = append(out, span{lo, r[0] + lo - at, hi - lo})
		}
		at += r[1] - r[0]
	}
	return
}

// HFTensors lists the tensors of an export with the given dtype for each Hugging Face name.
func (m *Model) HFTensors(dtype func(hf string) string) []checkpoint.Info {
	out := m.HFShapes()
	for i := range out {
		out[i].DType = checkpoint.DType(strings.ToUpper(dtype(out[i].Name)))
	}
	return out
}

// Export writes every logical parameter to dst, which was made for HFTensors. value fills a whole logical parameter.
func (m *Model) Export(dst checkpoint.Sink, dtype func(hf string) string,
	value func(p *grad.Param, dst []float32) error) error {
	shared := turns{}
	for _, p := range m.Params(nil) {
		v := make([]float32, tensor.Len(p.Shape))
		if err := value(p, v); err != nil {
			return err
		}
		s, p, v, whole := shared.add(m.Source(p.Name), p, v)
		if !whole {
			continue
		}
		if len(p.Shape) == 3 {
			if err := s.exportCube(dst, dtype, p, v); err != nil {
				return err
			}
			continue
		}
		d, err := tensor.ParseDType(strings.ToLower(dtype(s.Name)))
		if err != nil {
			return err
		}
		cols := tensor.Len(p.Shape[1:])
		for _, r := range s.cover(0, p.Shape[0]) {
			raw := make([]byte, r.n*cols*d.Size())
			part := v[r.logical*cols : (r.logical+r.n)*cols]
			if s.Turned {
				turned := make([]float32, len(part))
				turn(turned, part, r.n, cols)
				part = turned
			}
			tensor.Narrow(d, part, raw)
			if err := dst.WriteRanges(s.Name, s.ranges(r, p.Shape, 0, cols), raw); err != nil {
				return err
			}
		}
	}
	return dst.Commit()
}

// Adapters lists the adapter parameters of the model under lora.
func (m *Model) Adapters(lora *block.Lora) (out []*grad.Param) {
	for _, p := range m.Params(lora) {
		if strings.Contains(p.Name, ".lora_") {
			out = append(out, p)
		}
	}
	return
}
