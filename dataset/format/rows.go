package format

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"

	"github.com/lfactor/lfactor/dataset"
)

// openRows opens a Parquet file whose rows are read as JSON objects, columns in their order.
func openRows(path string, o dataset.Options) (records, error) {
	p, err := openParquet(path, o)
	if err != nil {
		return nil, err
	}
	if err := p.checkCodecs(-1); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.decode = p.objects
	return p, nil
}

// openColumns is openRows of some columns of a file, by the names of its fields: the others are not read.
func openColumns(path string, o dataset.Options, names ...string) (records, error) {
	p, err := openParquet(path, o)
	if err != nil {
		return nil, err
	}
	if err := p.checkCodecs(-1); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	group := parquet.Group{}
	for _, f := range p.file.Schema().Fields() {
		if slices.Contains(names, f.Name()) {
			group[f.Name()] = f
		}
	}
	schema := parquet.NewSchema("columns", group)
	how, err := parquet.Convert(schema, p.file.Schema())
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.decode = func(g parquet.RowGroup) ([][]byte, error) {
		return p.objectsOf(parquet.ConvertRowGroup(g, how), schema)
	}
	return p, nil
}

// objects decodes a row group into one JSON object a row.
func (p *parquetFile) objects(g parquet.RowGroup) ([][]byte, error) {
	return p.objectsOf(g, p.file.Schema())
}

func (p *parquetFile) objectsOf(g parquet.RowGroup, schema *parquet.Schema) (out [][]byte, err error) {
	rows := g.Rows()
	defer func() { err = errors.Join(err, rows.Close()) }()
	buf := make([]parquet.Row, 64)
	total := 0
	for {
		n, err := rows.ReadRows(buf)
		for _, r := range buf[:n] {
			b := rowJSON(schema, r)
			if total += len(b); total > rowGroupsBytesMax {
				return nil, fmt.Errorf("it decodes to over %d bytes", rowGroupsBytesMax)
			}
			out = append(out, b)
		}
		if err != nil {
			return out, ignoreEOF(err)
		}
	}
}

// rowJSON writes a row as a JSON object. A row is its leaf columns' values with repetition and definition
// levels (Melnik et al., "Dremel", VLDB 2010); a value of a level below an optional or repeated node's own
// is its absence.
func rowJSON(schema *parquet.Schema, row parquet.Row) []byte {
	columns := make([][]parquet.Value, len(schema.Columns()))
	row.Range(func(i int, values []parquet.Value) bool {
		columns[i] = values
		return true
	})
	w := &rowWriter{}
	w.group(schema, columns, 0, 0)
	return w.out.Bytes()
}

type rowWriter struct{ out bytes.Buffer }

// node writes one value of a node: its columns' values are all of this instance. rep and def are the levels
// above it.
func (w *rowWriter) node(n parquet.Field, columns [][]parquet.Value, rep, def int) {
	if n.Optional() {
		if def++; absent(columns, def) {
			w.out.WriteString("null")
			return
		}
	}
	if n.Repeated() {
		w.elements(n, columns, rep+1, def+1)
		return
	}
	w.required(n, columns, rep, def)
}

// required writes a value that is there.
func (w *rowWriter) required(n parquet.Node, columns [][]parquet.Value, rep, def int) {
	if n.Leaf() {
		w.leaf(n, columns[0][0])
		return
	}
	if f := n.Fields(); len(f) == 1 && f[0].Repeated() { // a LIST, or a MAP as a list of keys and values
		w.elements(f[0], columns, rep+1, def+1)
		return
	}
	w.group(n, columns, rep, def)
}

// absent says whether the value at definition level def is null or its list empty.
func absent(columns [][]parquet.Value, def int) bool {
	return len(columns) == 0 || len(columns[0]) == 0 || columns[0][0].DefinitionLevel() < def
}

// elements writes the values of a repeated node as a list. An element is usually wrapped in a group of its
// own; the names that old writers gave to groups that are elements themselves are those of the Parquet
// specification.
func (w *rowWriter) elements(n parquet.Field, columns [][]parquet.Value, rep, def int) {
	w.out.WriteByte('[')
	if !absent(columns, def) {
		for i, part := range splitAt(columns, rep) {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if !n.Leaf() && len(n.Fields()) == 1 && n.Name() != "array" &&
				!strings.HasSuffix(n.Name(), "_tuple") {
				w.node(n.Fields()[0], part, rep, def)
			} else {
				w.required(n, part, rep, def)
			}
		}
	}
	w.out.WriteByte(']')
}

// splitAt cuts the values of columns where an element of repetition level rep begins.
func splitAt(columns [][]parquet.Value, rep int) [][][]parquet.Value {
	var out [][][]parquet.Value
	for c, values := range columns {
		element := -1
		for i, v := range values {
			if i > 0 && v.RepetitionLevel() > rep {
				out[element][c] = append(out[element][c], v)
				continue
			}
			if element++; element == len(out) {
				out = append(out, make([][]parquet.Value, len(columns)))
			}
			out[element][c] = append(out[element][c], v)
		}
	}
	return out
}

// group writes the fields of a group as a JSON object; each field takes as many columns as it has
// leaves.
func (w *rowWriter) group(n parquet.Node, columns [][]parquet.Value, rep, def int) {
	w.out.WriteByte('{')
	for i, f := range n.Fields() {
		if i > 0 {
			w.out.WriteByte(',')
		}
		w.text(f.Name())
		w.out.WriteByte(':')
		leaves := leafCount(f)
		w.node(f, columns[:leaves], rep, def)
		columns = columns[leaves:]
	}
	w.out.WriteByte('}')
}

// leafCount is the number of columns that a field takes.
func leafCount(n parquet.Node) int {
	if n.Leaf() {
		return 1
	}
	count := 0
	for _, f := range n.Fields() {
		count += leafCount(f)
	}
	return count
}

// leaf writes one value as JSON. Bytes of fixed length, which have no form in JSON, are written in
// hexadecimal, and those of other columns than texts that are no UTF-8 in base64.
func (w *rowWriter) leaf(n parquet.Node, v parquet.Value) {
	if v.IsNull() {
		w.out.WriteString("null")
		return
	}
	switch v.Kind() {
	case parquet.Boolean:
		w.out.WriteString(strconv.FormatBool(v.Boolean()))
	case parquet.Int32:
		w.out.WriteString(strconv.FormatInt(int64(v.Int32()), 10))
	case parquet.Int64:
		w.out.WriteString(strconv.FormatInt(v.Int64(), 10))
	case parquet.Int96:
		w.text(deprecated.Int96(v.Int96()).String())
	case parquet.Float:
		w.number(float64(v.Float()), 32)
	case parquet.Double:
		w.number(v.Double(), 64)
	case parquet.ByteArray:
		if n.Type().String() != "STRING" && checkUTF8(v.ByteArray(), dataset.Place{}) != nil {
			w.text(base64.StdEncoding.EncodeToString(v.ByteArray())) // an image
			return
		}
		w.bytes(v.ByteArray())
	default:
		w.text(hex.EncodeToString(v.ByteArray()))
	}
}

// bytes writes text. Bytes that are no UTF-8 go through as they are, so that the reader finds them.
func (w *rowWriter) bytes(b []byte) {
	if checkUTF8(b, dataset.Place{}) == nil {
		w.text(string(b))
		return
	}
	w.out.WriteByte('"')
	w.out.Write(b)
	w.out.WriteByte('"')
}

// number writes a number; what JSON has no number for is null.
func (w *rowWriter) number(x float64, bits int) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		w.out.WriteString("null")
		return
	}
	w.out.WriteString(strconv.FormatFloat(x, 'g', -1, bits))
}

// text writes a JSON string, without escaping the characters that are special to HTML alone.
func (w *rowWriter) text(s string) {
	e := json.NewEncoder(&w.out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(fmt.Sprintf("format: a string does not encode: %v", err))
	}
	w.out.Truncate(w.out.Len() - 1) // the encoder's newline
}
