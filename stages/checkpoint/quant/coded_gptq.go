package quant

import (
	"regexp"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// GPTQ's layout, version 1, as quant_gptq.go reads it.
var _ = registerCoded(codedForm{name: "gptq", ordered: true, parts: func(module string, m *Coded) []codedPart {
	groups := m.Cols / m.Group
	return []codedPart{
		{checkpoint.Info{Name: module + wordsTail, DType: checkpoint.I32, Shape: []int{m.Cols / 8, m.Rows}},
			func(i, j int) (word uint32) {
				for k := range 8 {
					word |= uint32(m.At(j, 8*i+k)) << (4 * k)
				}
				return word
			}}, {checkpoint.Info{Name: module + zerosTail, DType: checkpoint.I32,
			Shape: []int{groups, m.Rows / 8}}, func(i, j int) (word uint32) {
			for k := range 8 {
				word |= (m.zero(8*j+k, i) - 1) & 15 << (4 * k)
			}
			return word
		}}, m.scalesPart(module + scalesEnd), {checkpoint.Info{Name: module + groupsEnd, DType: checkpoint.I32,
			Shape: []int{m.Cols}}, func(i, _ int) uint32 { return uint32(m.groupOf(i)) }}}
}, config: func(group int, modules []string, ordered, sym bool) any {
	out := map[string]any{"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": ordered,
		"sym": sym, "lm_head": false, "checkpoint_format": "gptq"}
	if len(modules) > 0 { // GPTQModel and vLLM leave out what a pattern behind "-:" matches
		dynamic := map[string]any{}
		for _, m := range modules {
			dynamic["-:^"+regexp.QuoteMeta(m)+"$"] = map[string]any{}
		}
		out["dynamic"] = dynamic
	}
	return out
}})
