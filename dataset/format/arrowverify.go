package format

import (
	"errors"
	"fmt"

	fb "github.com/google/flatbuffers/go"
)

// errArrowMeta says that a message's description contradicts itself.
var errArrowMeta = errors.New("damaged: a message's description names more than there is of it")

// arrowVerify looks at the lists of a message's description, whose lengths the library takes for true and makes
// room for. Source of the slots: Arrow's Message.fbs and Schema.fbs.
type arrowVerify struct{ left int } // fields that the description has room for

// message checks a description.
func (v arrowVerify) message(t fb.Table, kind byte) error {
	o := fb.UOffsetT(t.Offset(8))
	if o == 0 {
		return errors.New("damaged: a message has no header")
	}
	var h fb.Table
	t.Union(&h, o)
	v.left = len(t.Bytes) / 4
	switch kind {
	case arrowSchema:
		return v.schema(&h)
	case arrowBatch:
		return v.batch(&h)
	case arrowDictionary:
		if o := fb.UOffsetT(h.Offset(6)); o != 0 {
			b := fb.Table{Bytes: h.Bytes, Pos: h.Indirect(o + h.Pos)}
			return v.batch(&b)
		}
	}
	return nil
}

// list checks a list of elements of a size and returns where it begins and how long it is.
func (v arrowVerify) list(t *fb.Table, slot fb.VOffsetT, size int) (at fb.UOffsetT, n int, err error) {
	o := fb.UOffsetT(t.Offset(slot))
	if o == 0 {
		return 0, 0, nil
	}
	at, n = t.Vector(o), t.VectorLen(o)
	if n < 0 || n > (len(t.Bytes)-int(at))/size {
		return 0, 0, errArrowMeta
	}
	return at, n, nil
}

// batch checks what a record batch says of its arrays and buffers.
func (v arrowVerify) batch(t *fb.Table) error {
	for _, s := range []struct {
		slot fb.VOffsetT
		size int
	}{{6, 16}, {8, 16}, {12, 8}} {
		if _, _, err := v.list(t, s.slot, s.size); err != nil {
			return err
		}
	}
	return nil
}

// schema checks fields and what is noted beside them.
func (v *arrowVerify) schema(t *fb.Table) error {
	if _, _, err := v.list(t, 10, 8); err != nil {
		return err
	}
	return v.fields(t, 6, 8)
}

// fields checks the fields in one slot, all that is in them, and the list of notes in another.
func (v *arrowVerify) fields(t *fb.Table, slot, notes fb.VOffsetT) error {
	if _, _, err := v.list(t, notes, 4); err != nil {
		return err
	}
	at, n, err := v.list(t, slot, 4)
	if err != nil {
		return err
	}
	if v.left -= n; v.left < 0 {
		return fmt.Errorf("%w: fields", errArrowMeta)
	}
	for i := range n {
		f := fb.Table{Bytes: t.Bytes, Pos: t.Indirect(at + fb.UOffsetT(4*i))}
		if err := v.fields(&f, 14, 16); err != nil {
			return err
		}
		if err := v.types(&f); err != nil {
			return err
		}
	}
	return nil
}

// types checks the list that types of unions have.
func (v *arrowVerify) types(f *fb.Table) error {
	const union = 14
	o := fb.UOffsetT(f.Offset(10))
	if o == 0 || f.GetByteSlot(8, 0) != union {
		return nil
	}
	var t fb.Table
	f.Union(&t, o)
	_, _, err := v.list(&t, 6, 4)
	return err
}
