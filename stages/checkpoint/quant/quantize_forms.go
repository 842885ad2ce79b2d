package quant

import (
	"encoding/binary"
	"math"
	"regexp"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// compressedConfig is quantization_config of compressed-tensors for weights alone.
func compressedConfig(format string, modules []string, weights map[string]any) any {
	for key, v := range map[string]any{"symmetric": true, "dynamic": false, "actorder": nil, "block_structure": nil,
		"observer": "minmax", "observer_kwargs": map[string]any{}} {
		weights[key] = v
	}
	return map[string]any{"quant_method": "compressed-tensors", "format": format,
		"quantization_status": "compressed", "ignore": ignored(modules), "kv_cache_scheme": nil,
		"config_groups": map[string]any{"group_0": map[string]any{"targets": []string{"Linear"},
			"weights": weights, "input_activations": nil, "output_activations": nil, "format": format}}}
}

// ignored are the entries of "ignore" for modules that stay as they are: names of files are not always those of the
// modules that libraries make, which have model. or language_model. in front, or in another order.
func ignored(modules []string) (out []string) {
	for _, m := range modules {
		rest := m
		for _, part := range []string{"model.", "language_model.", "model."} {
			rest = strings.TrimPrefix(rest, part)
		}
		if first, _, _ := strings.Cut(m, "."); first == "model" && !strings.HasPrefix(m, "model.language_model.") || rest == m && first == "lm_head" {
			out = append(out, m) // a model of text alone, whose modules are the file's
			continue
		}
		out = append(out, `re:^((model|language_model)\.)*`+regexp.QuoteMeta(rest)+"$")
	}
	return out
}

var _ = registerQuantizer(quantizer{name: "fp8", unit: fp8Block,
	doc:  "e4m3 with a float32 scale for blocks of 128×128, as DeepSeek V3's",
	fits: func(rows, cols int) bool { return rows > 0 && cols > 0 }, parts: func(m checkpoint.Info) []quantPart {
		blocks := func(w []float32, cols int, f func(i, at int, scale float32, last bool)) {
			rows := len(w) / cols
			n := 0
			for r := 0; r < rows; r += fp8Block {
				for c := 0; c < cols; c += fp8Block {
					most := float32(0)
					for i := r; i < min(r+fp8Block, rows); i++ {
						most = max(most, magnitude(w[i*cols+c:i*cols+min(c+fp8Block, cols)]))
					}
					scale := most / e4m3[126]
					f(n, -1, scale, true)
					for i := r; i < min(r+fp8Block, rows); i++ {
						for j := c; j < min(c+fp8Block, cols); j++ {
							f(n, i*cols+j, scale, false)
						}
					}
					n++
				}
			}
		}
		return []quantPart{{Info: checkpoint.Info{Name: m.Name, DType: checkpoint.F8E4M3, Shape: m.Shape}, rows: 1,
			fill: func(dst []byte, w []float32, cols int, _ float32) {
				blocks(w, cols, func(_, at int, scale float32, block bool) {
					if !block && scale != 0 {
						dst[at] = toE4M3(w[at] / scale)
					}
				})
			}}, {Info: checkpoint.Info{Name: m.Name + scaleInv, DType: checkpoint.F32,
			Shape: []int{ceilDiv(m.Shape[0], fp8Block), ceilDiv(m.Shape[1], fp8Block)}}, rows: fp8Block,
			fill: func(dst []byte, w []float32, cols int, _ float32) {
				blocks(w, cols, func(i, _ int, scale float32, block bool) {
					if block {
						putWord(dst, i, math.Float32bits(scale))
					}
				})
			}}}
	}, config: func(modules []string) any {
		return map[string]any{"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
			"weight_block_size": []int{fp8Block, fp8Block}, "modules_to_not_convert": modules}
	}})

var _ = registerQuantizer(quantizer{name: "int8", unit: 1,
	doc:  "8-bit integers with a scale for each row, as compressed-tensors' pack-quantized",
	fits: func(rows, cols int) bool { return rows > 0 && cols > 0 && cols%4 == 0 },
	parts: func(m checkpoint.Info) []quantPart {
		d := scaleType(m)
		scaleOf := func(w []float32) float32 { return magnitude(w) / 127 }
		return []quantPart{{Info: checkpoint.Info{Name: m.Name + packedTail, DType: checkpoint.I32,
			Shape: []int{m.Shape[0], m.Shape[1] / 4}}, rows: 1,
			fill: func(dst []byte, w []float32, cols int, _ float32) {
				var raw [4]byte
				for r := 0; r < len(w); r += cols {
					scale := putFloat(d, raw[:d.Bits()/8], scaleOf(w[r:r+cols]))
					for i, x := range w[r : r+cols] {
						dst[r+i] = byte(whole8(x, scale, -128, 127)) ^ 128
					}
				}
			}}, {Info: checkpoint.Info{Name: m.Name + scaleTail, DType: d, Shape: []int{m.Shape[0], 1}}, rows: 1,
			fill: func(dst []byte, w []float32, cols int, _ float32) {
				size := d.Bits() / 8
				for r := range len(w) / cols {
					putFloat(d, dst[r*size:(r+1)*size], scaleOf(w[r*cols:(r+1)*cols]))
				}
			}}, shapePart(m)}
	}, config: func(modules []string) any {
		return compressedConfig("pack-quantized", modules, map[string]any{"num_bits": 8, "type": "int",
			"strategy": "channel", "group_size": nil})
	}})

// shapePart is what compressed-tensors keeps of a matrix's shape beside its words.
func shapePart(m checkpoint.Info) quantPart {
	return quantPart{Info: checkpoint.Info{Name: m.Name + shapeTail, DType: checkpoint.I64, Shape: []int{2}},
		fill: func(dst []byte, _ []float32, _ int, _ float32) {
			binary.LittleEndian.PutUint64(dst, uint64(m.Shape[0]))
			binary.LittleEndian.PutUint64(dst[8:], uint64(m.Shape[1]))
		}}
}

// int4Group are the columns that share a scale.
const int4Group = 32

var _ = registerQuantizer(quantizer{name: "int4", unit: 1, doc: "4-bit integers with a scale for 32 columns, " +
	"as compressed-tensors' pack-quantized; scales are those of a few with the least squares of errors",
	fits: func(rows, cols int) bool { return rows > 0 && cols > 0 && cols%int4Group == 0 },
	parts: func(m checkpoint.Info) []quantPart {
		d := scaleType(m)
		each := func(w []float32, cols int, f func(group int, part []float32, scale float32)) {
			for at := 0; at < len(w); at += int4Group {
				part := w[at : at+int4Group]
				f(at/int4Group, part, int4Scale(d, part))
			}
		}
		return []quantPart{{Info: checkpoint.Info{Name: m.Name + packedTail, DType: checkpoint.I32,
			Shape: []int{m.Shape[0], m.Shape[1] / 8}}, rows: 1,
			fill: func(dst []byte, w []float32, cols int, _ float32) {
				each(w, cols, func(group int, part []float32, scale float32) {
					for i := 0; i < int4Group; i += 8 {
						word := uint32(0)
						for j, x := range part[i : i+8] {
							word |= uint32(whole8(x, scale, -8, 7)+8) << (4 * j)
						}
						putWord(dst, (group*int4Group+i)/8, word)
					}
				})
			}}, {Info: checkpoint.Info{Name: m.Name + scaleTail, DType: d, Shape: []int{m.Shape[0],
			m.Shape[1] / int4Group}}, rows: 1, fill: func(dst []byte, w []float32, cols int, _ float32) {
			size := d.Bits() / 8
			each(w, cols, func(group int, _ []float32, scale float32) {
				putFloat(d, dst[group*size:(group+1)*size], scale)
			})
		}}, shapePart(m)}
	}, config: func(modules []string) any {
		return compressedConfig("pack-quantized", modules, map[string]any{"num_bits": 4, "type": "int",
			"strategy": "group", "group_size": int4Group})
	}})

// wholeMagic pushes what is behind the point out of a float32 of small magnitude.
const wholeMagic = float32(3 << 22)

// int4Scale is the scale, as it is in a type, that leaves the least squares of errors of those from the
// greatest magnitude over 8 down to seven tenths of that over 7.
func int4Scale(d checkpoint.DType, part []float32) (best float32) {
	most, least := magnitude(part), float32(math.Inf(1))
	var raw [4]byte
	for _, over := range []float32{7, 7.5, 8, 7 / 0.95, 7 / 0.9, 7 / 0.8, 7 / 0.7} {
		scale, sum := putFloat(d, raw[:d.Bits()/8], most/over), float32(0)
		if scale == 0 {
			return 0
		}
		for by, i := 1/scale, 0; i < len(part); i++ {
			whole := float32(part[i]*by) + wholeMagic - wholeMagic
			e := part[i] - scale*min(max(whole, -8), 7)
			sum += e * e
		}
		if sum < least {
			best, least = scale, sum
		}
	}
	return best
}

var _ = registerQuantizer(quantizer{name: "nvfp4", unit: 1, doc: "4-bit floating-point numbers with a " +
	"scale in e4m3 for 16 columns and a float32 for the matrix, as compressed-tensors' nvfp4-pack-quantized",
	fits: func(rows, cols int) bool { return rows > 0 && cols > 0 && cols%nvfp4Group == 0 },
	parts: func(m checkpoint.Info) []quantPart {
		global := func(most float32) float32 {
			if most == 0 {
				return 1
			}
			return e4m3[126] * e2m1[7] / most
		}
		scaleOf := func(part []float32, most float32) byte {
			return toE4M3(magnitude(part) / e2m1[7] * global(most))
		}
		return []quantPart{{Info: checkpoint.Info{Name: m.Name + packedTail, DType: checkpoint.U8,
			Shape: []int{m.Shape[0], m.Shape[1] / 2}}, rows: 1,
			fill: func(dst []byte, w []float32, _ int, most float32) {
				for at := 0; at < len(w); at += nvfp4Group {
					part := w[at : at+nvfp4Group]
					scale := e4m3[scaleOf(part, most)] / global(most)
					for i, x := range part {
						if scale != 0 {
							dst[(at+i)/2] |= toE2M1(x/scale) << (4 * (i % 2))
						}
					}
				}
			}}, {Info: checkpoint.Info{Name: m.Name + scaleTail, DType: checkpoint.F8E4M3,
			Shape: []int{m.Shape[0], m.Shape[1] / nvfp4Group}}, rows: 1,
			fill: func(dst []byte, w []float32, _ int, most float32) {
				for g := range len(w) / nvfp4Group {
					dst[g] = scaleOf(w[g*nvfp4Group:(g+1)*nvfp4Group], most)
				}
			}}, {Info: checkpoint.Info{Name: m.Name + globalTail, DType: checkpoint.F32, Shape: []int{1}},
			fill: func(dst []byte, _ []float32, _ int, most float32) {
				putWord(dst, 0, math.Float32bits(global(most)))
			}}}
	}, config: func(modules []string) any {
		return compressedConfig("nvfp4-pack-quantized", modules, map[string]any{"num_bits": 4, "type": "float",
			"strategy": "tensor_group", "group_size": nvfp4Group, "scale_dtype": "torch.float8_e4m3fn"})
	}})
