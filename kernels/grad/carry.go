package grad

import "github.com/lfactor/lfactor/kernels"

var (
	opExport     = &Op{Name: "export", Role: export}
	opImport     = &Op{Name: "import", Role: importing}
	opImportGrad = &Op{Name: "importgrad", Role: importGrad}
	opExportGrad = &Op{Name: "exportgrad", Role: exportGrad}
)

// Carry continues v along axis 0 over the chunks of a sequence: it exports v to later chunks and returns the
// earlier chunks' values followed by v, all in the order of the sequence. With one chunk it is the identity.
func (t *Tape) Carry(name string, v *Value) *Value {
	if t.Chunks == 1 {
		return v
	}
	v = t.natural(t.only(t.exchange(v), 1)) // concatenation mixes axis 0
	var parts []*Value
	for c := 0; c < t.Chunk; c++ {
		im := t.one(opImport, kernels.Attr{Name: name, I: [4]int{c}}, v.DType, v.Shape, v.Place)
		im.Need, im.Name = v.Need, name
		parts = append(parts, im)
	}
	if t.Chunk < t.Chunks-1 {
		v.Exported = true
		t.emit(opExport, kernels.Attr{Name: name, I: [4]int{t.Chunks - 1 - t.Chunk}}, []*Value{v})
	}
	if len(parts) == 0 {
		return v
	}
	return t.Concat(0, append(parts, v)...)
}
