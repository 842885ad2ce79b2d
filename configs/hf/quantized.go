package hf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	Global  struct {
		Weight struct {
			Type string `json:"dtype"`
		} `json:"weight"`
	} `json:"global_quant_config"` // of Quark, and of layers that differ
	Layers map[string]any `json:"layer_quant_config"`
	Sparse struct {
		Format string `json:"format"`
	} `json:"sparsity_config"` // of compressed-tensors
}

// String is the method with what else tells its forms apart.
func (q quantization) String() string {
	said := []string{cmp.Or(q.Method, "no quant_method"), q.Algo, q.Format, q.Form, q.Version, q.Global.Weight.Type, q.Sparse.Format}
	if q.Bits > 0 {
		said = append(said, fmt.Sprintf("%d bits", q.Bits))
	}
	return strings.Join(slices.DeleteFunc(said, func(s string) bool { return s == "" }), " ")
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
	"fp8": func(q *quantization) bool {
		return q.Block == nil || len(q.Block) == 2 && min(q.Block[0], q.Block[1]) > 0
	},
	"fbgemm_fp8": func(*quantization) bool { return true },
	"gptq": func(q *quantization) bool {
		return slices.Contains([]int{2, 3, 4, 8}, q.Bits) && slices.Contains([]string{"", "gptq", "gptq_v2"}, q.Form)
	},
	"awq": func(q *quantization) bool {
		return q.Bits == 4 && (q.Version == "" || q.Version == "gemm")
	},
	"bitsandbytes": func(*quantization) bool { return true },
	"modelopt":     func(q *quantization) bool { return q.Algo == "NVFP4" || q.Algo == "FP8" },
	"quark":        func(q *quantization) bool { return q.Global.Weight.Type == "fp8_e4m3" && len(q.Layers) == 0 },
	"compressed-tensors": func(q *quantization) bool {
		for _, g := range q.Groups {
			if g.Format == "" {
				g.Format = q.Format
			}
			if !g.readable() {
				return false
			}
		}
		return len(q.Groups) > 0 && (q.Sparse.Format == "" || q.Sparse.Format == "dense")
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
	case "float-quantized", "mxfp8-quantized":
		return w.Type == "float" && w.Bits == 8
	case "naive-quantized":
		return w.Bits == 8
	case "nvfp4-pack-quantized", "mxfp4-pack-quantized":
		return w.Type == "float" && w.Bits == 4
	}
	return false
}

// dequantized is a form of quantized weights, and whether quant.Dequantized reads it.
func dequantized(value string) (q quantization, ok bool) {
	if json.Unmarshal([]byte(value), &q) != nil {
		return q, false // what could be read of it says its name
	}
	reads := readable[q.Method]
	return q, reads != nil && reads(&q)
}
