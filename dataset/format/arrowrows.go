package format

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// arrowRow writes row i of a record batch as a JSON object, in the form that rows of Parquet have.
func (w *rowWriter) arrowRow(rec arrow.Record, i int) {
	w.out.WriteByte('{')
	for c := range int(rec.NumCols()) {
		if c > 0 {
			w.out.WriteByte(',')
		}
		w.text(rec.ColumnName(c))
		w.out.WriteByte(':')
		w.arrowValue(rec.Column(c), i)
	}
	w.out.WriteByte('}')
}

// arrowValue writes value i of an array as JSON.
func (w *rowWriter) arrowValue(a arrow.Array, i int) {
	if a.IsNull(i) {
		w.out.WriteString("null")
		return
	}
	switch a := a.(type) {
	case *array.Null:
		w.out.WriteString("null")
	case *array.String:
		w.bytes([]byte(a.Value(i)))
	case *array.LargeString:
		w.bytes([]byte(a.Value(i)))
	case *array.StringView:
		w.bytes([]byte(a.Value(i)))
	case *array.Binary:
		w.binary(a.Value(i))
	case *array.LargeBinary:
		w.binary(a.Value(i))
	case *array.BinaryView:
		w.binary(a.Value(i))
	case *array.FixedSizeBinary:
		w.text(hex.EncodeToString(a.Value(i)))
	case *array.Boolean:
		w.out.WriteString(strconv.FormatBool(a.Value(i)))
	case *array.Float16:
		w.number(float64(a.Value(i).Float32()), 32)
	case *array.Float32:
		w.number(float64(a.Value(i)), 32)
	case *array.Float64:
		w.number(a.Value(i), 64)
	case *array.Decimal128:
		w.text(decimalText(a.Value(i).BigInt(), int(a.DataType().(*arrow.Decimal128Type).Scale)))
	case *array.Decimal256:
		w.text(decimalText(a.Value(i).BigInt(), int(a.DataType().(*arrow.Decimal256Type).Scale)))
	case *array.Dictionary:
		w.arrowValue(a.Dictionary(), a.GetValueIndex(i))
	case *array.Struct:
		w.arrowStruct(a, i)
	case *array.Timestamp:
		text := a.ValueStr(i)
		if at, err := time.Parse("2006-01-02 15:04:05Z0700", text); err == nil && !at.Equal(a.Value(i).ToTime(
			a.DataType().(*arrow.TimestampType).Unit)) { // an old zone has seconds, which the text cannot say
			text = timestampText(a.Value(i).ToTime(a.DataType().(*arrow.TimestampType).Unit))
		}
		w.text(text)
	case array.ListLike:
		from, to := a.ValueOffsets(i)
		w.out.WriteByte('[')
		for k := from; k < to; k++ {
			if k > from {
				w.out.WriteByte(',')
			}
			if w.out.Len() > rowGroupsBytesMax {
				panic(fmt.Sprintf("a row is over %d bytes", rowGroupsBytesMax)) // guard makes an error of it
			}
			w.arrowValue(a.ListValues(), int(k))
		}
		w.out.WriteByte(']')
	case array.ExtensionArray:
		w.arrowValue(a.Storage(), i)
	default:
		if arrow.IsInteger(a.DataType().ID()) {
			w.out.WriteString(a.ValueStr(i))
			return
		}
		w.text(a.ValueStr(i)) // times
	}
}

// arrowStruct writes a struct as an object.
func (w *rowWriter) arrowStruct(a *array.Struct, i int) {
	w.out.WriteByte('{')
	for f, field := range a.DataType().(*arrow.StructType).Fields() {
		if f > 0 {
			w.out.WriteByte(',')
		}
		w.text(field.Name)
		w.out.WriteByte(':')
		w.arrowValue(a.Field(f), i)
	}
	w.out.WriteByte('}')
}
