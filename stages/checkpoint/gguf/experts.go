package gguf

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// experts are the names of a mixture's parts in a layer of Hugging Face's, where * is an expert's number,
// and the keys of its configuration. llama.cpp keeps the experts of a layer in one tensor for each of three matrices.
type experts struct {
	router           string
	each             [3]string // gate, up and down
	count, used, mlp string    // keys of config.json; mlp is "" where it is intermediate_size
}

// expertTensors are llama.cpp's names of the three.
var expertTensors = [3]string{"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}

// expertOf is the tensor in which llama.cpp keeps an expert's matrix by our name, and its place there; ""
// for any other tensor.
func (f *family) expertOf(name string) (theirs string, expert int) {
	rest, ok := strings.CutPrefix(name, "model.layers.")
	layer, module, in := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(layer); f.moe == nil || !ok || !in || err != nil || layer != strconv.Itoa(n) {
		return "", 0
	}
	for i, pattern := range f.moe.each {
		before, after, _ := strings.Cut(pattern+".weight", "*")
		rest, ok := strings.CutPrefix(module, before)
		number, last := strings.CutSuffix(rest, after)
		if x, err := strconv.Atoi(number); ok && last && err == nil && number == strconv.Itoa(x) && x >= 0 {
			return fmt.Sprintf("blk.%s.%s.weight", layer, expertTensors[i]), x
		}
	}
	return "", 0
}

// expert is our name of an expert's matrix in one of llama.cpp's tensors, "" for any other.
func (f *family) expert(name string, x int) string {
	rest, ok := strings.CutPrefix(name, "blk.")
	layer, module, in := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(layer); f.moe == nil || !ok || !in || err != nil || layer != strconv.Itoa(n) {
		return ""
	}
	for i, theirs := range expertTensors {
		if module == theirs+".weight" {
			return "model.layers." + layer + "." + strings.Replace(f.moe.each[i], "*", strconv.Itoa(x), 1) + ".weight"
		}
	}
	return ""
}

// takeExperts shows a tensor of a layer's experts as a matrix of each; false for any other tensor.
func (m *Model) takeExperts(t *Tensor) (bool, error) {
	if m.family.expert(t.Name, 0) == "" {
		return false, nil
	}
	n := m.config.experts
	if len(t.Shape) != 3 || t.Shape[0] != n {
		return true, m.fault(t.Name, checkpoint.Misshapen, "at offset %d: %v, want a matrix for each of %d experts",
			t.Offset, t.Shape, n)
	}
	for x := range n {
		part := *t
		part.Shape, part.Bytes = t.Shape[1:], t.Bytes/int64(n)
		part.Offset += int64(x) * part.Bytes
		if err := m.show(m.family.expert(t.Name, x), &part); err != nil {
			return true, err
		}
	}
	return true, nil
}

// readExperts reads the numbers of a mixture from the metadata.
func (m *Model) readExperts() (err error) {
	c := &m.config
	if m.family.moe == nil {
		return nil
	}
	if c.experts, err = m.number("expert_count", -1); err == nil {
		c.used, err = m.number("expert_used_count", -1)
	}
	if err == nil {
		c.expertMLP, err = m.number("expert_feed_forward_length", c.mlp)
	}
	if err == nil && c.used > c.experts {
		err = m.fault("", checkpoint.Malformed, "%s.expert_used_count is %d of %d", m.family.arch, c.used, c.experts)
	}
	return err
}

// describeExperts is the part of config.json that a mixture has.
func (m *Model) describeExperts(out map[string]any) {
	moe, c := m.family.moe, &m.config
	if moe == nil {
		return
	}
	delete(out, "attention_bias")
	out[moe.count], out[moe.used] = c.experts, c.used
	if moe.mlp != "" {
		out[moe.mlp], out["norm_topk_prob"] = c.expertMLP, true
		out["decoder_sparse_step"], out["mlp_only_layers"] = 1, []int{}
	}
}

// readExperts reads those of config.json, and refuses what llama.cpp would compute in another way: it
// divides the weights of the chosen experts by their sum, and has experts in every layer.
func (e *exporter) readExperts() (err error) {
	moe, c := e.family.moe, &e.config
	if moe == nil {
		return nil
	}
	if e.raw[moe.count] == nil { // as transformers 5 saves it
		e.raw[moe.count] = e.raw["num_local_experts"]
	}
	for key, to := range map[string]*int{moe.count: &c.experts, moe.used: &c.used} {
		if *to, err = e.whole(key, 0); err == nil && *to == 0 {
			err = e.fault("config.json", "", checkpoint.Missing, "%s is not there", key)
		}
		if err != nil {
			return err
		}
	}
	c.expertMLP = c.mlp
	if moe.mlp == "" {
		return nil
	}
	if c.expertMLP, err = e.whole(moe.mlp, 0); err != nil || c.expertMLP == 0 {
		return e.fault("config.json", "", checkpoint.Missing, "%s is not there", moe.mlp)
	}
	if e.raw["norm_topk_prob"] != true {
		return e.fault("config.json", "", checkpoint.Extra, "norm_topk_prob is %v: llama.cpp divides the weights "+
			"of chosen experts by their sum, and GGUF has no key for it", e.raw["norm_topk_prob"])
	}
	if dense, _ := e.raw["mlp_only_layers"].([]any); len(dense) > 0 || // nil is none
		e.raw["decoder_sparse_step"] != nil && e.raw["decoder_sparse_step"] != 1.0 {
		return e.fault("config.json", "", checkpoint.Extra, "layers without experts are not written for %s",
			e.family.arch)
	}
	return nil
}

// describeExperts puts the numbers of a mixture into the metadata.
func (e *exporter) describeExperts(u func(key string, v int)) {
	c := &e.config
	if e.family.moe == nil {
		return
	}
	u("expert_count", c.experts)
	u("expert_used_count", c.used)
	if e.family.moe.mlp != "" {
		u("expert_feed_forward_length", c.expertMLP)
	}
}

// placeExpert gathers the matrices of a layer's experts; false for any other tensor.
func (e *exporter) placeExpert(t checkpoint.Info, w written) (bool, error) {
	name, x := e.family.expertOf(t.Name)
	if name == "" {
		return false, nil
	}
	if _, err := checkpoint.ByteSize(t.DType, t.Shape); err != nil || len(t.Shape) != 2 || x >= e.config.experts ||
		t.DType != checkpoint.F32 && t.DType != checkpoint.F16 && t.DType != checkpoint.BF16 {
		return true, e.fault(t.File, t.Name, checkpoint.Misshapen, "%s %v of expert %d of %d", t.DType, t.Shape, x,
			e.config.experts)
	}
	all := e.experts[name]
	if all == nil {
		all = make([]checkpoint.Info, e.config.experts)
		e.experts[name] = all
		as := w.of(name, t.Shape, &e.config)
		l := layouts[as]
		e.from[name] = t
		e.tensors = append(e.tensors, Tensor{Name: name, Type: as,
			Shape: []int{e.config.experts, t.Shape[0], t.Shape[1]},
			Bytes: int64(e.config.experts) * int64(t.Shape[0]) * int64(t.Shape[1]/l.elements*l.bytes)})
	}
	if first := e.from[name].Shape; first[0] != t.Shape[0] || first[1] != t.Shape[1] {
		return true, e.fault(t.File, t.Name, checkpoint.Misshapen, "%v, others of the layer have %v", t.Shape, first)
	}
	all[x] = t
	return true, nil
}

// missingExperts names those that a layer lacks.
func (e *exporter) missingExperts() (errs []error) {
	for i := range e.tensors {
		for x, t := range e.experts[e.tensors[i].Name] {
			if t.Name == "" {
				errs = append(errs, e.fault("", e.family.expert(e.tensors[i].Name, x), checkpoint.Missing,
					"its layer has others"))
			}
		}
	}
	return errs
}
