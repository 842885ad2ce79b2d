package hf

import (
	"encoding/json"
	"slices"
)

// quantization is what a config.json says of quantized weights.
type quantization struct {
	Method  string                `json:"quant_method"`
	Format  string                `json:"format"`
	Block   []int                 `json:"weight_block_size"`
	Bits    int                   `json:"bits"`
	Version string                `json:"version"`
	Form    string                `json:"checkpoint_format"`
	Algo    string                `json:"quant_algo"`
	Groups  map[string]quantGroup `json:"config_groups"`
}

// quantGroup is how compressed-tensors keeps the weights of some layers.
type quantGroup struct {
	Format  string `json:"format"`
	Weights struct {
		Bits int    `json:"num_bits"`
		Type string `json:"type"`
	} `json:"weights"`
}

// readable tells by the method whether checkpoint.Dequantized reads its weights.
var readable = map[string]func(q *quantization) bool{
	"mxfp4": func(*quantization) bool { return true },
	"fp8":   func(q *quantization) bool { return slices.Equal(q.Block, []int{128, 128}) },
	"gptq": func(q *quantization) bool {
		return slices.Contains([]int{2, 3, 4, 8}, q.Bits) && slices.Contains([]string{"", "gptq", "gptq_v2"}, q.Form)
	},
	"awq": func(q *quantization) bool {
		return q.Bits == 4 && (q.Version == "" || q.Version == "gemm")
	},
	"bitsandbytes": func(*quantization) bool { return true },
	"modelopt":     func(q *quantization) bool { return q.Algo == "NVFP4" },
	"compressed-tensors": func(q *quantization) bool {
		for _, g := range q.Groups {
			if g.Format == "" {
				g.Format = q.Format
			}
			if !g.readable() {
				return false
			}
		}
		return len(q.Groups) > 0
	},
}

// readable is that of a group's weights; a format may be left to its layers.
func (g quantGroup) readable() bool {
	w := g.Weights
	switch g.Format {
	case "pack-quantized":
		return w.Type == "int" && (w.Bits == 2 || w.Bits == 4 || w.Bits == 8)
	case "int-quantized":
		return w.Type == "int" && w.Bits == 8
	case "float-quantized":
		return w.Type == "float" && w.Bits == 8
	case "naive-quantized":
		return w.Bits == 8
	case "nvfp4-pack-quantized":
		return w.Type == "float" && w.Bits == 4
	}
	return false
}

// dequantized reports a form of quantized weights that checkpoint.Dequantized reads.
func dequantized(value string) bool {
	var q quantization
	if json.Unmarshal([]byte(value), &q) != nil {
		return false
	}
	ok := readable[q.Method]
	return ok != nil && ok(&q)
}
