package quant

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// fakeForm begins the names of forms whose numbers are those that a weight had in training with train.qat.
const fakeForm = "qat-int"

// FakeForm is the form of Quantize with the numbers that products saw in training.
func FakeForm(f kernels.Fake) string { return fmt.Sprintf("%s%d/%d", fakeForm, f.Bits, f.Group) }

// fakeQuantizer is the form of a name that FakeForm made, nil for others. Scales are float32, so that
// nothing is rounded but as in training.
func fakeQuantizer(name string) *quantizer {
	rest, ok := strings.CutPrefix(name, fakeForm)
	var f kernels.Fake
	if _, err := fmt.Sscanf(rest, "%d/%d", &f.Bits, &f.Group); !ok || err != nil || f.Bits != 4 && f.Bits != 8 {
		return nil
	}
	per, strategy := 32/f.Bits, "group"
	var size any = f.Group
	if f.Group == 0 {
		strategy, size = "channel", nil
	}
	return &quantizer{name: name, unit: 1, fits: func(rows, cols int) bool {
		return rows > 0 && cols > 0 && cols%per == 0 && (f.Group == 0 || cols%f.Group == 0)
	}, parts: func(m checkpoint.Info) []quantPart { return fakeParts(f, m) }, config: func(modules []string) any {
		return compressedConfig("pack-quantized", modules,
			map[string]any{"num_bits": f.Bits, "type": "int", "strategy": strategy, "group_size": size})
	}}
}

func fakeParts(f kernels.Fake, m checkpoint.Info) []quantPart {
	cols := m.Shape[1]
	group, per := f.Group, 32/f.Bits
	if group == 0 {
		group = cols
	}
	half := 1 << (f.Bits - 1)
	return []quantPart{{Info: checkpoint.Info{Name: m.Name + packedTail, DType: checkpoint.I32,
		Shape: []int{m.Shape[0], cols / per}}, rows: 1, fill: func(dst []byte, w []float32, _ int, _ float32) {
		codes := make([]float32, group)
		for at := 0; at < len(w); at += group {
			part := w[at : at+group]
			f.Codes(codes, part, f.Scale(part))
			for i, q := range codes {
				word := (at + i) / per
				bits := uint32(int(q)+half) << (f.Bits * ((at + i) % per))
				putWord(dst, word, binary.LittleEndian.Uint32(dst[4*word:])|bits)
			}
		}
	}}, {Info: checkpoint.Info{Name: m.Name + scaleTail, DType: checkpoint.F32,
		Shape: []int{m.Shape[0], cols / group}}, rows: 1, fill: func(dst []byte, w []float32, _ int, _ float32) {
		for g := range len(w) / group {
			putFloat(checkpoint.F32, dst[4*g:4*g+4], f.Scale(w[g*group:(g+1)*group]))
		}
	}}, shapePart(m)}
}
