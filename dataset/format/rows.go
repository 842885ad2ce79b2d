package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/lfactor/lfactor/dataset"
)

// OpenRows opens a Parquet file whose rows are read as JSON objects, columns in their order.
func OpenRows(path string, o dataset.Options) (Records, error) {
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

// OpenColumns is openRows of some columns of a file, by the names of its fields: the others are not read.
func OpenColumns(path string, o dataset.Options, names ...string) (Records, error) {
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
	leaves := leafWriters(schema, halfColumns(p.file.Metadata().Schema))
	buf := make([]parquet.Row, 64)
	total := 0
	for {
		n, err := rows.ReadRows(buf)
		for _, r := range buf[:n] {
			b := rowJSON(schema, leaves, r)
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

// rowJSON writes a row as a JSON object. A row is its leaf columns' values with repetition and definition levels
// (Melnik et al., "Dremel", VLDB 2010); a value of a level below an optional or repeated node's own is its absence.
func rowJSON(schema *parquet.Schema, leaves []leafWriter, row parquet.Row) []byte {
	columns := make([][]parquet.Value, len(schema.Columns()))
	row.Range(func(i int, values []parquet.Value) bool {
		columns[i] = values
		return true
	})
	w := &rowWriter{leaves: leaves}
	w.group(schema, columns, 0, 0)
	return w.out.Bytes()
}

// rowWriter writes a row as JSON; leaves are the writers of Parquet's columns.
type rowWriter struct {
	out    bytes.Buffer
	leaves []leafWriter
}

// node writes one value of a node: its columns' values are all of this instance. rep and def are the levels above it.
func (w *rowWriter) node(n parquet.Field, columns [][]parquet.Value, rep, def int) {
	if n.Optional() {
		if def++; absent(columns, def) {
			w.out.WriteString("null")
			return
		}
	}
	if n.Repeated() { // a list without the annotation of one: its elements are the values of this node
		w.elements(n, columns, rep+1, def+1, false)
		return
	}
	w.required(n, columns, rep, def)
}

// required writes a value that is there.
func (w *rowWriter) required(n parquet.Node, columns [][]parquet.Value, rep, def int) {
	if n.Leaf() {
		w.leaf(columns[0][0])
		return
	}
	if f := n.Fields(); len(f) == 1 && f[0].Repeated() {
		switch annotated(n, f[0]) {
		case "LIST":
			w.elements(f[0], columns, rep+1, def+1, wrapped(n, f[0]))
			return
		case "MAP": // as a list of keys and values
			w.elements(f[0], columns, rep+1, def+1, false)
			return
		}
	}
	w.group(n, columns, rep, def)
}

// absent says whether the value at definition level def is null or its list empty.
func absent(columns [][]parquet.Value, def int) bool {
	return len(columns) == 0 || len(columns[0]) == 0 || columns[0][0].DefinitionLevel() < def
}

// annotated says whether a group of one repeated field is a LIST or a MAP. Of old writers' maps, which are annotated
// as MAP_KEY_VALUE, the library tells nothing: they are known by the names that they have.
func annotated(n parquet.Node, of parquet.Field) string {
	if l := n.Type().LogicalType(); l != nil {
		switch l.Value.(type) {
		case *format.ListType:
			return "LIST"
		case *format.MapType:
			return "MAP"
		}
	}
	if f := of.Fields(); (of.Name() == "map" || of.Name() == "key_value") && len(f) == 2 && f[0].Name() == "key" &&
		f[1].Name() == "value" {
		return "MAP"
	}
	return ""
}

// wrapped says whether each element of a LIST is in a group of its own, by the rules for old writers of Parquet's
// specification (LogicalTypes.md, "Backward-compatibility rules").
func wrapped(list parquet.Node, of parquet.Field) bool {
	if of.Leaf() || len(of.Fields()) != 1 || of.Fields()[0].Repeated() || of.Name() == "array" {
		return false
	}
	name := ""
	if f, ok := list.(parquet.Field); ok {
		name = f.Name()
	}
	return of.Name() != name+"_tuple"
}

// elements writes the values of a repeated node as a list; where each is wrapped in a group, what the group has.
func (w *rowWriter) elements(n parquet.Field, columns [][]parquet.Value, rep, def int, wrapped bool) {
	w.out.WriteByte('[')
	if !absent(columns, def) {
		for i, part := range splitAt(columns, rep) {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if wrapped {
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

// group writes the fields of a group as a JSON object; each field takes as many columns as it has leaves.
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

// leaf writes one value as JSON.
func (w *rowWriter) leaf(v parquet.Value) {
	if v.IsNull() {
		w.out.WriteString("null")
		return
	}
	w.leaves[v.Column()](w, v)
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

// number writes a number with a fraction, as Python does: 3.0 is not 3 where a template writes it. What JSON has no
// number for is a text, as in the JSON form of protocol buffers.
func (w *rowWriter) number(x float64, bits int) {
	switch {
	case math.IsNaN(x):
		w.out.WriteString(`"NaN"`)
	case math.IsInf(x, 1):
		w.out.WriteString(`"Infinity"`)
	case math.IsInf(x, -1):
		w.out.WriteString(`"-Infinity"`)
	default:
		s := strconv.FormatFloat(x, 'g', -1, bits)
		if w.out.WriteString(s); !strings.ContainsAny(s, ".e") {
			w.out.WriteString(".0")
		}
	}
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
