package gguf

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
)

// exporter turns a Hugging Face directory into a file.
type exporter struct {
	dir, path string
	src       checkpoint.Source
	family    *family
	config    config
	raw       map[string]any // config.json
	rows      int            // of the embedding
	meta      []pair
	tensors   []Tensor
	from      map[string]checkpoint.Info // by the tensors' names
	experts   map[string][]checkpoint.Info
}

// Export writes the file path of the model in dir, a Hugging Face directory, with matrices of a type of
// Written; "" keeps the type that most of them have. Norms and biases are float32, as llama.cpp wants them,
// and matrices whose rows are no whole blocks are float16. What the file cannot say is an error that names
// the key or the tensor. Of a conversion that was interrupted it writes what j has not.
func Export(j *checkpoint.Journal, dir, path, dtype string) error {
	src, err := checkpoint.OpenDir(dir)
	if err != nil {
		return err
	}
	defer src.Close()
	e := &exporter{dir: dir, path: path, from: map[string]checkpoint.Info{}, experts: map[string][]checkpoint.Info{}}
	if e.src, err = quant.Dequantized(src, dir); err != nil {
		return err
	}
	e.src = checkpoint.Finite(e.src)
	if err := e.readConfig(); err != nil {
		return err
	}
	if dtype == "" {
		dtype = e.usual()
	}
	w, ok := writtenTypes[strings.ToLower(dtype)]
	if !ok {
		return fmt.Errorf("type %q is not written to GGUF, %v are", dtype, Written())
	}
	if err := e.place(w); err != nil {
		return err
	}
	e.describe(w.file)
	if err := e.vocabulary(); err != nil {
		return err
	}
	return writeFile(j, path, e.meta, e.tensors, e.fill)
}

// fault is one of the directory's files.
func (e *exporter) fault(file, tensor string, f checkpoint.Fault, format string, a ...any) error {
	return &checkpoint.Error{File: filepath.Join(e.dir, file), Tensor: tensor, Fault: f, Why: fmt.Sprintf(format, a...)}
}

// usual is the type of the matrices with most elements.
func (e *exporter) usual() string {
	bytes := map[checkpoint.DType]int64{}
	for _, t := range e.src.Tensors() {
		if len(t.Shape) > 1 {
			bytes[t.DType] += t.Bytes
		}
	}
	best, name := int64(0), "f32"
	for d, as := range map[checkpoint.DType]string{checkpoint.F16: "f16", checkpoint.BF16: "bf16",
		checkpoint.F32: "f32"} {
		if bytes[d] > best || bytes[d] == best && as < name { // a tie has one winner
			best, name = bytes[d], as
		}
	}
	return name
}

// place lists the tensors of the file in the order of layers. Every one of the directory has a name there,
// or a reason not to be written.
func (e *exporter) place(w written) error {
	var errs []error
	own := hf.OwnHead(e.dir)
	e.config.tied = e.family.tied || e.raw["tie_word_embeddings"] == true && !own
	for _, t := range e.src.Tensors() {
		name := e.family.theirs(t.Name)
		if is, err := e.placeExpert(t, w); is {
			errs = append(errs, err)
			continue
		}
		switch {
		case strings.HasSuffix(t.Name, ".rotary_emb.inv_freq"): // follows from the configuration
			continue
		case t.Name == "lm_head.weight" && e.family.tied && own:
			errs = append(errs, e.fault(t.File, t.Name, checkpoint.Extra, "GGUF's %s has the embedding as its head", e.family.arch))
			continue
		case t.Name == "lm_head.weight" && e.config.tied: // is the embedding
			continue
		case name == "":
			errs = append(errs, e.fault(t.File, t.Name, checkpoint.Extra, "GGUF's %s has no such tensor",
				e.family.arch))
			continue
		case t.DType != checkpoint.F32 && t.DType != checkpoint.F16 && t.DType != checkpoint.BF16:
			errs = append(errs, e.fault(t.File, t.Name, checkpoint.Misshapen,
				"dtype %s, want F32, F16 or BF16", t.DType))
			continue
		case len(t.Shape) == 0 || len(t.Shape) > 2 || slices.Contains(t.Shape, 0):
			errs = append(errs, e.fault(t.File, t.Name, checkpoint.Misshapen, "shape %v", t.Shape))
			continue
		}
		as, width := w.of(name, t.Shape, &e.config), t.Shape[len(t.Shape)-1]
		if t.Name == "model.embed_tokens.weight" {
			e.rows = t.Shape[0]
		}
		n := int64(width)
		for _, d := range t.Shape[:len(t.Shape)-1] {
			n *= int64(d)
		}
		l := layouts[as]
		e.from[name] = t
		e.tensors = append(e.tensors, Tensor{Name: name, Type: as, Shape: t.Shape,
			Bytes: n / int64(l.elements) * int64(l.bytes)})
	}
	errs = append(errs, e.missingExperts()...)
	if e.rows == 0 {
		errs = append(errs, e.fault("", "model.embed_tokens.weight", checkpoint.Missing, "the model needs it"))
	}
	if s, ok := e.config.scaling["factors"].([]float64); ok {
		e.tensors = append(e.tensors, Tensor{Name: "rope_freqs.weight", Type: F32, Shape: []int{len(s)},
			Bytes: int64(4 * len(s))})
	}
	slices.SortFunc(e.tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(order(a.Name), order(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return errors.Join(errs...)
}

// order is where a tensor lies: the embedding, layers, then what is behind them.
func order(name string) int {
	var n int
	if _, err := fmt.Sscanf(name, "blk.%d.", &n); err == nil {
		return n + 1
	}
	if name == "token_embd.weight" || name == "rope_freqs.weight" {
		return 0
	}
	return math.MaxInt
}

// fillMax bounds what is held of a tensor, unless a head is larger.
const fillMax = 16 << 20

// fill writes a tensor, a few rows at a time.
func (e *exporter) fill(t *Tensor, put func([]byte) error) error {
	if t.Name == "rope_freqs.weight" {
		var row []float32
		for _, f := range e.config.scaling["factors"].([]float64) {
			row = append(row, float32(f))
		}
		return put(F32.encode(nil, row))
	}
	if all := e.experts[t.Name]; all != nil {
		one := *t
		one.Shape = t.Shape[1:]
		for _, from := range all {
			if err := e.fillOne(&one, from, put); err != nil {
				return err
			}
		}
		return nil
	}
	return e.fillOne(t, e.from[t.Name], put)
}

// fillOne writes a tensor of a tensor of the directory.
func (e *exporter) fillOne(t *Tensor, from checkpoint.Info, put func([]byte) error) error {
	c := e.family.changeOf(from.Name, e.config.heads, e.config.kvHeads)
	rows, width := t.Shape[0], 1
	if len(t.Shape) > 1 {
		width = t.Shape[1]
	}
	unit := 1
	if c.heads > 0 {
		if unit = rows / c.heads; rows%(2*c.heads) != 0 {
			return e.fault(from.File, from.Name, checkpoint.Misshapen, "%d rows are no pairs in %d heads",
				rows, c.heads)
		}
	}
	if len(t.Shape) == 1 && c.heads == 0 {
		unit = rows
	}
	each := from.DType.Bits() / 8
	step := max(1, fillMax/(4*width*unit)) * unit
	var raw, out []byte
	x := make([]float32, min(step, rows)*width)
	for at := 0; at < rows; at += step {
		n := min(step, rows-at)
		box := [][2]int{{at, at + n}, {0, width}}[:len(t.Shape)]
		raw = slices.Grow(raw[:0], n*width*each)[:n*width*each]
		if err := e.src.ReadRanges(from.Name, box, raw); err != nil {
			return err
		}
		for r := range n {
			to := r
			if c.heads > 0 { // parts are whole heads
				to = r/unit*unit + change{heads: 1}.row(r%unit, unit)
			}
			floats(x[to*width:][:width], raw[r*width*each:], from.DType, c.plus)
		}
		if t.Type == F16 && slices.ContainsFunc(x[:n*width], func(v float32) bool { return v >= 65520 || v <= -65520 }) {
			return e.fault(from.File, from.Name, checkpoint.Malformed, "it has numbers too large for f16: write bf16 or f32")
		}
		out = t.Type.encode(out[:0], x[:n*width])
		if t.Type.few() && slices.ContainsFunc(x[:n*width], beyond) && !wholeBlocks(t.Type, out) {
			return e.fault(from.File, from.Name, checkpoint.Malformed,
				"it has numbers so large that the scales of a block of few bits, which are float16, do not reach them")
		}
		if err := put(out); err != nil {
			return err
		}
	}
	return nil
}

// beyond reports whether a number is so large that a block with it may have a scale beyond float16's.
func beyond(v float32) bool { return v > 32768 || v < -32768 }

// wholeBlocks reports whether all numbers of blocks are finite.
func wholeBlocks(t Type, raw []byte) bool {
	x := make([]float32, len(raw)/layouts[t].bytes*layouts[t].elements)
	t.decode(x, raw)
	return !slices.ContainsFunc(x, func(v float32) bool { return v-v != 0 })
}

// floats reads numbers of a type, and adds to them.
func floats(x []float32, raw []byte, d checkpoint.DType, plus float32) {
	for i := range x {
		switch d {
		case checkpoint.F32:
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		case checkpoint.F16:
			x[i] = tensor.F16Value(binary.LittleEndian.Uint16(raw[2*i:]))
		default:
			x[i] = tensor.BF16Value(binary.LittleEndian.Uint16(raw[2*i:]))
		}
		x[i] += plus
	}
}

// readConfig reads config.json and refuses what a file of the family cannot say.
func (e *exporter) readConfig() error {
	text, err := os.ReadFile(filepath.Join(e.dir, "config.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &e.raw); err != nil {
		return e.fault("config.json", "", checkpoint.Malformed, "%v", err)
	}
	typ, _ := e.raw["model_type"].(string) // refused below
	i := slices.IndexFunc(families, func(f family) bool {
		return f.modelType == typ || slices.Contains(f.also, typ)
	})
	if i < 0 {
		return e.fault("config.json", "", checkpoint.Extra, "model_type is %q; models of llama, mistral, mixtral, "+
			"qwen2, qwen3, qwen3_moe, gemma2 and gemma3_text are written as GGUF", typ)
	}
	e.family = &families[i]
	c := &e.config
	for key, to := range map[string]*int{"num_hidden_layers": &c.layers, "num_attention_heads": &c.heads,
		"hidden_size": &c.hidden, "intermediate_size": &c.mlp, "max_position_embeddings": &c.context} {
		if *to, err = e.whole(key, 0); err == nil && *to == 0 {
			err = e.fault("config.json", "", checkpoint.Missing, "%s is not there", key)
		}
		if err != nil {
			return err
		}
	}
	usual := 0
	if c.kvHeads, err = e.whole("num_key_value_heads", c.heads); err == nil {
		if usual = c.hidden / c.heads; e.family.window || e.family.arch == "qwen3" {
			usual = map[string]int{"qwen3": 128}[e.family.arch] + map[bool]int{true: 256}[e.family.window]
		}
		c.headDim, err = e.whole("head_dim", usual)
	}
	if err != nil {
		return err
	}
	if c.eps, err = e.real("rms_norm_eps", 1e-6); err == nil {
		c.theta, err = e.real("rope_theta", e.ropeUsual())
	}
	return cmp.Or(err, e.readRope(), e.plain(), e.gemma(), e.readExperts())
}

// ropeUsual is transformers' base of frequencies where the file says none.
func (e *exporter) ropeUsual() float64 {
	if p, ok := e.raw["rope_parameters"].(map[string]any); ok {
		if full, ok := p["full_attention"].(map[string]any); ok {
			p = full
		}
		if theta, ok := p["rope_theta"].(float64); ok {
			return theta
		}
	}
	if e.family.arch == "gemma3" {
		return 1e6
	}
	return 1e4
}

// whole is a whole number of config.json.
func (e *exporter) whole(key string, usual int) (int, error) {
	switch v := e.raw[key].(type) {
	case nil:
		return usual, nil
	case float64:
		if v >= 0 && v < 1<<31 && v == math.Trunc(v) {
			return int(v), nil
		}
	}
	return 0, e.fault("config.json", "", checkpoint.Malformed, "%s is %v, want a whole number", key, e.raw[key])
}

// real is a number of config.json.
func (e *exporter) real(key string, usual float64) (float64, error) {
	switch v := e.raw[key].(type) {
	case nil:
		return usual, nil
	case float64:
		return v, nil
	}
	return 0, e.fault("config.json", "", checkpoint.Malformed, "%s is %v, want a number", key, e.raw[key])
}

// readRope takes over how positions are stretched.
func (e *exporter) readRope() error {
	s, _ := e.raw["rope_scaling"].(map[string]any) // null is none
	if p, ok := e.raw["rope_parameters"].(map[string]any); ok && s == nil {
		if s = p; p["full_attention"] != nil {
			s, _ = p["full_attention"].(map[string]any) // checked by its use
		}
	}
	kind, _ := s["rope_type"].(string)
	if kind == "" {
		kind, _ = s["type"].(string)
	}
	at := func(key string) float64 { x, _ := s[key].(float64); return x } // 0 for none
	switch kind {
	case "", "default":
		return nil
	case "linear", "yarn":
		for key := range s {
			if !slices.Contains([]string{"rope_type", "type", "factor", "rope_theta",
				"original_max_position_embeddings"}, key) {
				return e.fault("config.json", "", checkpoint.Extra, "rope_scaling.%s: GGUF does not say it", key)
			}
		}
		e.config.scaling = map[string]any{"kind": kind, "factor": at("factor"),
			"context": at("original_max_position_embeddings")}
	case "llama3":
		r := stretch{at("factor"), at("low_freq_factor"), at("high_freq_factor"),
			at("original_max_position_embeddings")}
		if r.high <= r.low || r.factor <= 0 || r.context <= 0 || e.family.arch != "llama" {
			return e.fault("config.json", "", checkpoint.Malformed, "rope_scaling of llama3: %+v", r)
		}
		e.config.scaling = map[string]any{"factors": r.factors(e.config.theta, e.config.headDim)}
	default:
		return e.fault("config.json", "", checkpoint.Extra, "rope_scaling of type %q is not written as GGUF", kind)
	}
	return nil
}

// plain refuses settings under which the model computes what llama.cpp would not.
func (e *exporter) plain() error {
	act := cmp.Or(text(e.raw["hidden_activation"]), text(e.raw["hidden_act"]))
	want := "silu"
	if e.family.window {
		want = "gelu_pytorch_tanh"
	}
	if act != "" && act != want {
		return e.fault("config.json", "", checkpoint.Extra, "hidden_act is %q, only %s is written for %s", act, want,
			e.family.arch)
	}
	types, _ := e.raw["layer_types"].([]any) // as the family has them
	sliding := slices.ContainsFunc(types, func(t any) bool { return t != "full_attention" })
	swa := e.raw["use_sliding_window"] == true || (e.raw["model_type"] == "mistral" ||
		e.raw["model_type"] == "mixtral") && e.raw["sliding_window"] != nil
	if !e.family.window && (sliding || swa) {
		return e.fault("config.json", "", checkpoint.Extra, "some layers have a window, which GGUF's %s has not",
			e.family.arch)
	}
	for key, one := range map[string]any{"partial_rotary_factor": 1.0, "num_experts": 0.0} {
		if v := e.raw[key]; v != nil && v != one && (key != "num_experts" || e.family.moe == nil) {
			return e.fault("config.json", "", checkpoint.Extra, "%s is %v, only %v is written", key, v, one)
		}
	}
	return nil
}

func text(v any) string { s, _ := v.(string); return s } // "" for none

// gemma takes over what only Gemma has.
func (e *exporter) gemma() (err error) {
	if !e.family.window {
		return nil
	}
	c := &e.config
	want := queryScalar(c.layers, c.hidden, c.heads, c.headDim, e.family.arch)
	scalar, err := e.whole("query_pre_attn_scalar", 256)
	if err == nil && scalar != want {
		err = e.fault("config.json", "", checkpoint.Extra,
			"query_pre_attn_scalar is %d: llama.cpp takes it to be %d, and GGUF has no key for it", scalar, want)
	}
	types, _ := e.raw["layer_types"].([]any) // nil is the usual ones
	every := map[string]int{"gemma2": 2, "gemma3": 6}[e.family.arch]
	for i, t := range types {
		if full := (i+1)%every == 0; full != (t == "full_attention") {
			err = cmp.Or(err, e.fault("config.json", "", checkpoint.Extra, "layer_types: layer %d is of %v; GGUF's "+
				"%s has one of full attention after %d with a window", i, t, e.family.arch, every-1))
		}
	}
	if local, e2 := e.real("rope_local_base_freq", 1e4); e.family.arch == "gemma3" && (e2 != nil || local != 1e4) {
		err = cmp.Or(err, e2, e.fault("config.json", "", checkpoint.Extra,
			"rope_local_base_freq is %g, llama.cpp takes it to be 10000", local))
	}
	if err != nil {
		return err
	}
	if c.window, err = e.whole("sliding_window", 4096); err != nil || e.family.arch != "gemma2" {
		return err
	}
	if c.attnCap, err = e.real("attn_logit_softcapping", 0); err == nil {
		c.logitCap, err = e.real("final_logit_softcapping", 0)
	}
	return err
}

// describe makes the metadata of the model.
func (e *exporter) describe(file uint32) {
	c, a := &e.config, e.family.arch+"."
	u := func(key string, v int) { e.meta = append(e.meta, pair{a + key, uint32(v)}) }
	f := func(key string, v float64) { e.meta = append(e.meta, pair{a + key, float32(v)}) }
	e.meta = append(e.meta, pair{architecture, e.family.arch}, pair{"general.type", "model"},
		pair{"general.name", filepath.Base(filepath.Clean(e.dir))}, pair{"general.file_type", file},
		pair{"general.quantization_version", uint32(2)})
	u("block_count", c.layers)
	u("context_length", c.context)
	u("embedding_length", c.hidden)
	u("feed_forward_length", c.mlp)
	u("attention.head_count", c.heads)
	u("attention.head_count_kv", c.kvHeads)
	u("attention.key_length", c.headDim)
	u("attention.value_length", c.headDim)
	u("rope.dimension_count", c.headDim)
	u("vocab_size", e.rows)
	e.describeExperts(u)
	f("attention.layer_norm_rms_epsilon", c.eps)
	f("rope.freq_base", c.theta)
	if kind, ok := c.scaling["kind"].(string); ok {
		e.meta = append(e.meta, pair{a + "rope.scaling.type", kind})
		f("rope.scaling.factor", c.scaling["factor"].(float64))
		if n := c.scaling["context"].(float64); n > 0 {
			u("rope.scaling.original_context_length", int(n))
		}
	}
	if c.window > 0 {
		u("attention.sliding_window", c.window)
	}
	if e.family.arch == "gemma2" {
		f("attn_logit_softcapping", c.attnCap)
		f("final_logit_softcapping", c.logitCap)
	}
}
