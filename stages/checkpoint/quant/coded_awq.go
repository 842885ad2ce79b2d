package quant

import (
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// AWQ's layout for products of matrices, as quant_awq.go reads it.
var _ = registerCoded(codedForm{name: "awq", parts: func(module string, m *Coded) []codedPart {
	word := func(j int, number func(row int) uint32) (word uint32) {
		for k, place := range awqPlace {
			word |= number(awqEach*j+k) << (4 * place)
		}
		return word
	}
	return []codedPart{
		{checkpoint.Info{Name: module + wordsTail, DType: checkpoint.I32, Shape: []int{m.Cols, m.Rows / awqEach}},
			func(i, j int) uint32 {
				return word(j, func(row int) uint32 { return uint32(m.At(row, i)) })
			}},
		{checkpoint.Info{Name: module + zerosTail, DType: checkpoint.I32, Shape: []int{m.Cols / m.Group, m.Rows / awqEach}},
			func(i, j int) uint32 { return word(j, func(row int) uint32 { return m.zero(row, i) }) }},
		m.scalesPart(module + scalesEnd)}
}, config: func(group int, modules []string, _, _ bool) any {
	return map[string]any{"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": true,
		"version": "gemm", "modules_to_not_convert": modules}
}})
