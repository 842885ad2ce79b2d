package format

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow/go/v17/arrow/float16"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/lfactor/lfactor/dataset"
)

// leafWriter writes the values of one column as JSON.
type leafWriter func(*rowWriter, parquet.Value)

// leafWriters are those of a schema's columns, by the logical types of Parquet's specification (LogicalTypes.md), in
// the forms that rows of Arrow have: numbers where JSON has them, decimals as texts with every digit of their scale,
// dates, times and timestamps (in UTC) as texts, bytes as text or in base64 where they are none, bytes of fixed
// length in hexadecimal. What has no logical type is written by its physical one.
func leafWriters(schema *parquet.Schema, halves map[string]bool) []leafWriter {
	out := make([]leafWriter, len(schema.Columns()))
	for _, path := range schema.Columns() {
		leaf, _ := schema.Lookup(path...) // the schema names it
		out[leaf.ColumnIndex] = leafWriterOf(leaf.Node.Type())
		if halves[strings.Join(path, "\x00")] {
			out[leaf.ColumnIndex] = writeHalf
		}
	}
	return out
}

// halfColumns are the paths of the columns of FLOAT16 values, a type that the library's nodes do not tell.
func halfColumns(elements []format.SchemaElement) map[string]bool {
	out := map[string]bool{}
	var path []string
	var open []int // how many children of each group on the path are still to come
	for i, e := range elements {
		for len(open) > 0 && open[len(open)-1] == 0 {
			path, open = path[:len(path)-1], open[:len(open)-1]
		}
		if len(open) > 0 {
			open[len(open)-1]--
		}
		if !e.Type.Valid {
			if i > 0 {
				path = append(path, e.Name)
			} else {
				path = append(path, "") // the root, which is no part of a path
			}
			open = append(open, int(e.NumChildren.V))
			continue
		}
		if _, ok := e.LogicalType.Value.(*format.Float16Type); ok && e.TypeLength.V == 2 {
			out[strings.Join(append(slices.Clone(path), e.Name)[1:], "\x00")] = true
		}
	}
	return out
}

func leafWriterOf(t parquet.Type) leafWriter {
	switch l := logicalOf(t).(type) {
	case *format.StringType, *format.JsonType, *format.EnumType:
		return func(w *rowWriter, v parquet.Value) { w.bytes(v.ByteArray()) }
	case *format.IntType:
		if !l.IsSigned {
			return writeUnsigned
		}
	case *format.DecimalType:
		return func(w *rowWriter, v parquet.Value) { w.text(decimalText(unscaled(v), int(l.Scale))) }
	case *format.DateType:
		return func(w *rowWriter, v parquet.Value) {
			w.text(time.Unix(0, 0).UTC().AddDate(0, 0, int(v.Int32())).Format(time.DateOnly))
		}
	case *format.TimeType:
		digits := unitDigits(l.Unit)
		layout := "15:04:05." + strings.Repeat("0", digits)
		return func(w *rowWriter, v parquet.Value) { w.text(instant(integer(v), digits).Format(layout)) }
	case *format.TimestampType:
		digits := unitDigits(l.Unit)
		return func(w *rowWriter, v parquet.Value) { w.text(timestampText(instant(v.Int64(), digits))) }
	case *format.UUIDType:
		return func(w *rowWriter, v parquet.Value) { w.text(uuidText(v.ByteArray())) }
	}
	return writePhysical
}

// julianEpoch is the Julian day of 1970-01-01.
const julianEpoch = 2440588

// logicalOf is what a type stands for, nil where that is its physical type.
func logicalOf(t parquet.Type) format.LogicalTypeValue {
	if l := t.LogicalType(); l != nil {
		return l.Value
	}
	return nil
}

// writePhysical writes a value by its physical type.
func writePhysical(w *rowWriter, v parquet.Value) {
	switch v.Kind() {
	case parquet.Boolean:
		w.out.WriteString(strconv.FormatBool(v.Boolean()))
	case parquet.Int32, parquet.Int64:
		w.out.WriteString(strconv.FormatInt(integer(v), 10))
	case parquet.Int96: // a timestamp of Impala and Spark: nanoseconds of a Julian day
		x := v.Int96()
		w.text(timestampText(time.Unix((int64(x[2])-julianEpoch)*86400, int64(uint64(x[1])<<32|uint64(x[0]))).UTC()))
	case parquet.Float:
		w.number(float64(v.Float()), 32)
	case parquet.Double:
		w.number(v.Double(), 64)
	case parquet.ByteArray:
		w.binary(v.ByteArray())
	default:
		w.text(hex.EncodeToString(v.ByteArray()))
	}
}

func writeHalf(w *rowWriter, v parquet.Value) {
	w.number(float64(float16.FromLEBytes(v.ByteArray()).Float32()), 32)
}

func writeUnsigned(w *rowWriter, v parquet.Value) {
	u := v.Uint64()
	if v.Kind() == parquet.Int32 {
		u = uint64(v.Uint32())
	}
	w.out.WriteString(strconv.FormatUint(u, 10))
}

// integer is the value of a column of 32 or 64 bits.
func integer(v parquet.Value) int64 {
	if v.Kind() == parquet.Int32 {
		return int64(v.Int32())
	}
	return v.Int64()
}

// unscaled is a decimal's integer: in two's complement, bytes from the highest on.
func unscaled(v parquet.Value) *big.Int {
	if k := v.Kind(); k == parquet.Int32 || k == parquet.Int64 {
		return big.NewInt(integer(v))
	}
	b := v.ByteArray()
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// decimalText writes x·10^−scale with all digits.
func decimalText(x *big.Int, scale int) string {
	const scaleMax = 1 << 10 // no type has so many digits: the schema is damaged
	if scale <= 0 || scale > scaleMax {
		if scale < 0 && scale >= -scaleMax {
			x = new(big.Int).Mul(x, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-scale)), nil))
		}
		return x.String()
	}
	digits, sign := x.String(), ""
	if x.Sign() < 0 {
		digits, sign = digits[1:], "-"
	}
	if n := scale + 1 - len(digits); n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}

// unitDigits is how many digits of a second a unit of time has.
func unitDigits(u format.TimeUnit) int {
	switch u.Value.(type) {
	case *format.MilliSeconds:
		return 3
	case *format.MicroSeconds:
		return 6
	default:
		return 9
	}
}

// instant is n units of so many digits of a second after 1970-01-01.
func instant(n int64, digits int) time.Time {
	switch digits {
	case 3:
		return time.UnixMilli(n).UTC()
	case 6:
		return time.UnixMicro(n).UTC()
	default:
		return time.Unix(0, n).UTC()
	}
}

func timestampText(t time.Time) string { return t.Format("2006-01-02 15:04:05.999999999Z0700") }

func uuidText(b []byte) string {
	if len(b) != 16 {
		return hex.EncodeToString(b)
	}
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// binary writes bytes: as a text where they are one, else in base64, as an image.
func (w *rowWriter) binary(b []byte) {
	if checkUTF8(b, dataset.Place{}) != nil {
		w.text(base64.StdEncoding.EncodeToString(b))
		return
	}
	if string(bytesOf(string(b), false)) != string(b) { // a text that reads as base64: an escape, the same in JSON, tells
		fmt.Fprintf(&w.out, `"\u%04x%s"`, b[0], b[1:])
		return
	}
	w.text(string(b))
}
