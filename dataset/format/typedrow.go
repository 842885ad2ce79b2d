package format

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow/go/v17/arrow/float16"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/lfactor/lfactor/dataset"
)

// rowEncoder is a row by its columns: what rowWriter reads, the other way.
type rowEncoder [][]parquet.Value

// place is where a value goes: its first column, its levels, and how many lists it lies in.
type place struct{ column, rep, def, depth int }

// field writes the value of a node.
func (e *rowEncoder) field(n parquet.Field, raw json.RawMessage, p place) error {
	switch {
	case n.Optional() && string(raw) == "null":
		e.absent(n, p)
		return nil
	case n.Optional():
		p.def++
	case n.Repeated():
		return e.elements(n, raw, p, false)
	}
	return e.required(n, raw, p)
}

// add writes a value of a leaf.
func (e *rowEncoder) add(v parquet.Value, p place) {
	for len(*e) <= p.column {
		*e = append(*e, nil)
	}
	(*e)[p.column] = append((*e)[p.column], v.Level(p.rep, p.def, p.column))
}

// absent writes a null, or a list without elements.
func (e *rowEncoder) absent(n parquet.Node, p place) {
	for range leafCount(n) {
		e.add(parquet.NullValue(), p)
		p.column++
	}
}

// required writes a value that is there.
func (e *rowEncoder) required(n parquet.Field, raw json.RawMessage, p place) error {
	f := n.Fields()
	if n.Leaf() {
		v, err := leafValue(n.Type(), raw)
		if e.add(v, p); err != nil {
			return fmt.Errorf("%.40s does not fit: %w", raw, err)
		}
		return nil
	} else if kind := ""; len(f) == 1 && f[0].Repeated() {
		if kind = annotated(n, f[0]); kind != "" {
			return e.elements(f[0], raw, p, kind == "LIST" && wrapped(n, f[0]))
		}
	}
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	for i := 0; i < len(f) && err == nil; i++ {
		err = e.field(f[i], orNull(m[f[i].Name()]), p)
		p.column += leafCount(f[i])
	}
	return err
}

// orNull is a value that may be missing.
func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// elements writes a list; where each is wrapped in a group, what the group has.
func (e *rowEncoder) elements(n parquet.Field, raw json.RawMessage, p place, wrapped bool) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	if len(list) == 0 {
		e.absent(n, p)
	}
	write := e.required
	if wrapped {
		write, n = e.field, n.Fields()[0]
	}
	p.depth, p.def = p.depth+1, p.def+1
	for _, v := range list {
		if err := write(n, v, p); err != nil {
			return err
		}
		p.rep = p.depth
	}
	return nil
}

// leafValue makes a value of a type of what leafWriterOf and arrowValue write of it.
func leafValue(t parquet.Type, raw json.RawMessage) (v parquet.Value, err error) {
	text, bits := string(raw), 64
	quoted := strings.HasPrefix(text, `"`)
	if quoted {
		if err := json.Unmarshal(raw, &text); err != nil {
			return v, err
		}
	}
	if t.Kind() == parquet.Int32 {
		bits = 32
	}
	var n int64
	switch l := logicalOf(t).(type) {
	case *format.StringType, *format.JsonType, *format.EnumType:
		if !quoted {
			err = errors.New("it is no text")
		}
		return parquet.ByteArrayValue([]byte(text)), err
	case *format.UUIDType:
		text = strings.ReplaceAll(text, "-", "")
	case *format.Float16Type:
		x, err := strconv.ParseFloat(text, 32)
		half := float16.New(float32(x)).Uint16()
		return parquet.FixedLenByteArrayValue(binary.LittleEndian.AppendUint16(nil, half)), err
	case *format.DecimalType:
		return decimalValue(t, text, int(l.Scale))
	case *format.DateType, *format.TimeType, *format.TimestampType:
		n, err = moment(l, text)
		return wholeValue(t, n), err
	case *format.IntType:
		if bits = int(l.BitWidth); !l.IsSigned {
			u, err := strconv.ParseUint(text, 10, bits)
			return wholeValue(t, int64(u)), err
		}
	}
	switch t.Kind() {
	case parquet.Boolean:
		b, err := strconv.ParseBool(text)
		return parquet.BooleanValue(b), err
	case parquet.Int32, parquet.Int64: // durations of Arrow have their unit behind
		n, err = strconv.ParseInt(strings.TrimRight(text, "nuµms"), 10, bits)
		return wholeValue(t, n), err
	case parquet.Float:
		x, err := strconv.ParseFloat(text, 32)
		return parquet.FloatValue(float32(x)), err
	case parquet.Double:
		x, err := strconv.ParseFloat(text, 64)
		return parquet.DoubleValue(x), err
	case parquet.Int96: // nanoseconds of a Julian day
		n, err = moment(&format.TimestampType{}, text)
		day := (n - (n%dayOf+dayOf)%dayOf) / dayOf
		n -= day * dayOf
		return parquet.Int96Value(deprecated.Int96{uint32(n), uint32(n >> 32), uint32(day + julianEpoch)}), err
	case parquet.ByteArray:
		return parquet.ByteArrayValue(bytesOf(text, strings.HasPrefix(string(raw), `"\u`))), nil
	}
	b, err := hex.DecodeString(text)
	if err == nil && len(b) != t.Length() {
		err = fmt.Errorf("it has %d bytes and not %d", len(b), t.Length())
	}
	return parquet.FixedLenByteArrayValue(b), err
}

// dayOf is a day in nanoseconds.
const dayOf = int64(24 * time.Hour)

// bytesOf are the bytes that binary has written.
func bytesOf(text string, escaped bool) []byte {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || escaped || checkUTF8(b, dataset.Place{}) == nil {
		return []byte(text)
	}
	return b
}

// wholeValue is an integer of a type's width.
func wholeValue(t parquet.Type, n int64) parquet.Value {
	if t.Kind() == parquet.Int32 {
		return parquet.Int32Value(int32(n))
	}
	return parquet.Int64Value(n)
}

// decimalValue is a decimal of a text with all digits of the scale.
func decimalValue(t parquet.Type, text string, scale int) (v parquet.Value, err error) {
	whole, digits, _ := strings.Cut(text, ".")
	x, ok := new(big.Int).SetString(whole+digits, 10)
	size := t.Length()
	switch t.Kind() {
	case parquet.Int32, parquet.Int64:
		size = t.Length() / 8
	case parquet.ByteArray:
		size = 1
		if ok {
			size = x.BitLen()/8 + 1
		}
	}
	if !ok || len(digits) != scale || x.BitLen() >= 8*size {
		return v, fmt.Errorf("it is no number of %d bytes with %d digits behind the point", size, scale)
	}
	if k := t.Kind(); k == parquet.Int32 || k == parquet.Int64 {
		return wholeValue(t, x.Int64()), nil
	}
	if x.Sign() < 0 {
		x.Add(x, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	}
	return t.Kind().Value(x.FillBytes(make([]byte, size))), nil
}

// moment is a date, a time of a day or a timestamp in the units of its type.
func moment(of format.LogicalTypeValue, text string) (n int64, err error) {
	var at time.Time
	for _, layout := range []string{"2006-01-02 15:04:05Z0700", time.DateOnly, time.TimeOnly} {
		if at, err = time.Parse(layout, text); err == nil {
			break
		}
	}
	var unit format.TimeUnit
	switch l := of.(type) {
	case *format.DateType:
		return at.Unix() / 86400, err
	case *format.TimeType:
		unit, at = l.Unit, at.AddDate(1970, 0, 0)
	case *format.TimestampType:
		unit = l.Unit
	}
	switch unitDigits(unit) {
	case 3:
		return at.UnixMilli(), err
	case 6:
		return at.UnixMicro(), err
	}
	if n = at.UnixNano(); !time.Unix(0, n).Equal(at) {
		err = errors.New("nanoseconds do not reach so far")
	}
	return n, err
}
