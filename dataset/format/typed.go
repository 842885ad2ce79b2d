package format

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/format"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// Columns are the columns of tables with their types, in the order of the files.
type Columns struct {
	list []*typedNode
	meta map[string]string // what the files say of themselves
	made bool              // no file has this list, so that meta does not describe it
}

// arrowTypes is the key under which Parquet files keep the types that Arrow tells apart and Parquet does not.
const arrowTypes = "ARROW:schema"

// typedNode is a node of a schema: one of a file but for its codec and encoding, or one that is made.
type typedNode struct {
	parquet.Node
	name   string
	fields []parquet.Field
	leaf   parquet.Type
	arrow  *arrow.Field // of a column; nil where only Parquet's type is known
	file   string       // that a column comes from
}

func (n *typedNode) Name() string                { return n.name }
func (n *typedNode) Fields() []parquet.Field     { return n.fields }
func (n *typedNode) Encoding() encoding.Encoding { return &parquet.Plain } // that all readers read
func (n *typedNode) Compression() compress.Codec { return nil }
func (n *typedNode) Value(reflect.Value) reflect.Value {
	panic("format: a typed column is written by rows")
}

// Type is that of a leaf, or what annotates a group.
func (n *typedNode) Type() parquet.Type {
	if n.leaf != nil {
		return n.leaf
	}
	return n.Node.Type()
}

// kind is the type for people.
func (n *typedNode) kind() string {
	if n.arrow != nil {
		return n.arrow.Type.String()
	}
	return n.Type().String()
}

// halfType is FLOAT16, which the library does not know.
type halfType struct{ parquet.Type }

func (halfType) LogicalType() *format.LogicalType {
	return &format.LogicalType{Value: new(format.Float16Type)}
}

// TypedColumns are the columns of a table's file, nil where the file is none.
func TypedColumns(path string) (*Columns, error) {
	if t := tableOf(path, store.Head(path, tableHead)); t != nil {
		return t.columns(path)
	}
	return nil, nil
}

// typedParquet are the columns of a Parquet file.
func typedParquet(path string) (*Columns, error) {
	p, err := openParquet(path, dataset.Options{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	c := &Columns{meta: map[string]string{}}
	for _, kv := range p.file.Metadata().KeyValueMetadata {
		c.meta[kv.Key] = kv.Value
	}
	halves := halfColumns(p.file.Metadata().Schema)
	for _, f := range p.file.Schema().Fields() {
		c.list = append(c.list, typedOf(f, halves, f.Name()))
	}
	var schema *arrow.Schema
	raw, err := base64.StdEncoding.DecodeString(c.meta[arrowTypes])
	_ = guard(func() error { // a type that this library does not know: Parquet's types are known all the same
		r, err := ipc.NewReader(bytes.NewReader(raw))
		if err == nil {
			schema = r.Schema()
		}
		return err
	})
	for i, n := range c.list {
		if n.file = path; err == nil && schema != nil && schema.NumFields() == len(c.list) {
			n.arrow = new(schema.Field(i))
		}
	}
	return c, nil
}

// typedOf is a node of a file, whose halves have these paths.
func typedOf(f parquet.Field, halves map[string]bool, path string) *typedNode {
	n := &typedNode{Node: f, name: f.Name()}
	if f.Leaf() {
		if n.leaf = f.Type(); halves[path] {
			n.leaf = halfType{n.leaf}
		}
	}
	for _, g := range f.Fields() {
		n.fields = append(n.fields, typedOf(g, halves, path+"\x00"+g.Name()))
	}
	return n
}

// names are the columns' names, none of a file that cannot be read.
func (c *Columns) names() map[string]bool {
	out := map[string]bool{}
	if c != nil {
		for _, n := range c.list {
			out[n.name] = true
		}
	}
	return out
}

// find returns a column, nil where there is none of the name.
func (c *Columns) find(name string) *typedNode {
	if i := slices.IndexFunc(c.list, func(n *typedNode) bool { return n.name == name }); i >= 0 {
		return c.list[i]
	}
	return nil
}

// Rename gives a column another name.
func (c *Columns) Rename(from, to string) {
	if n := c.find(from); n != nil && from != to {
		n.name, c.made = to, true
		if n.arrow != nil {
			n.arrow.Name = to
		}
	}
}

// loosen lets a column have nulls.
func (n *typedNode) loosen() {
	n.Node = parquet.Optional(n.Node)
	if n.arrow != nil {
		n.arrow.Nullable = true
	}
}

// Merge adds the columns of another file: what one of them lacks may be null. One column of two types is an error.
func (c *Columns) Merge(o *Columns) error {
	for _, m := range c.list {
		n := o.find(m.name)
		if n == nil || n.Optional() != m.Optional() {
			m.loosen()
			c.made = true
		}
		if n == nil || n.leaf == parquet.NullType {
			continue
		}
		if m.Optional() {
			n.loosen()
		}
		if m.leaf == parquet.NullType {
			*m, c.made = *n, true
		}
		if !parquet.EqualNodes(m, n) || m.arrow != nil && n.arrow != nil && !arrow.TypeEqual(m.arrow.Type, n.arrow.Type) {
			return fmt.Errorf("column %q is %s in %s and %s in %s; write it with one type, or each file by a recipe of its "+
				"own", m.name, m.kind(), m.file, n.kind(), n.file)
		}
	}
	for _, n := range o.list {
		if c.find(n.name) == nil {
			n.loosen()
			c.list, c.made = append(c.list, n), true
		}
	}
	maps.DeleteFunc(c.meta, func(k, v string) bool { return o.meta[k] != v })
	return nil
}

// Learn has a column for a value of one that no file has, with the type that fits all values of it.
func (c *Columns) Learn(name string, value json.RawMessage) {
	n := c.find(name)
	if n == nil {
		n = &typedNode{name: name, arrow: &arrow.Field{Name: name, Type: arrow.Null, Nullable: true}}
		c.list, c.made = append(c.list, n), true
	} else if n.file != "" {
		return
	}
	var to, have arrow.DataType = arrow.BinaryTypes.String, n.arrow.Type
	switch v := value[0]; {
	case v == 'n':
		to = have
	case v == 't' || v == 'f':
		to = arrow.FixedWidthTypes.Boolean
	case v != '-' && (v < '0' || v > '9'):
	case have == arrow.PrimitiveTypes.Float64 || bytes.ContainsAny(value, ".eE"):
		to = arrow.PrimitiveTypes.Float64
	default:
		to = arrow.PrimitiveTypes.Int64
	}
	if have != arrow.Null && have != to && (have != arrow.PrimitiveTypes.Int64 || to != arrow.PrimitiveTypes.Float64) {
		to = arrow.BinaryTypes.String
	}
	n.arrow.Type = to
	_ = n.ofArrow(*n.arrow) // Parquet has types for all of these
}

// Untyped are the columns with values that JSON has only texts for, and their types.
func (c *Columns) Untyped() (out []string) {
	for _, n := range c.list {
		var b strings.Builder
		if parquet.PrintSchema(&b, n.name, n) == nil && textual.MatchString(b.String()) {
			out = append(out, fmt.Sprintf("%s (%s)", n.name, n.kind()))
		}
	}
	return out
}

// textual finds types whose values are texts in JSON, and are none.
var textual = regexp.MustCompile(`\((DECIMAL|DATE|TIME|UUID)|int96|(binary|array\(\d+\))( \S+)?;`)

// metadata is what a file of these columns says of itself: all that the files it comes from say, or Arrow's types.
func (c *Columns) metadata() (out []parquet.WriterOption, err error) {
	meta := c.meta
	if meta[arrowTypes] == "" || c.made {
		var fields []arrow.Field
		for _, n := range c.list {
			if n.arrow == nil {
				return nil, nil
			}
			fields = append(fields, *n.arrow)
		}
		if c.made {
			meta = nil
		}
		var b bytes.Buffer
		schema := arrow.NewSchema(fields, new(arrow.MetadataFrom(meta)))
		if err := ipc.NewWriter(&b, ipc.WithSchema(schema)).Close(); err != nil {
			return nil, err
		}
		out = append(out, parquet.KeyValueMetadata(arrowTypes, base64.StdEncoding.EncodeToString(b.Bytes())))
	}
	for k, v := range meta {
		out = append(out, parquet.KeyValueMetadata(k, v))
	}
	return out, nil
}

// TableWriter writes a Parquet file of typed columns.
type TableWriter struct {
	*parquet.Writer
	c *Columns
	n int // bytes in the row group
}

// What a row group has at most.
const (
	tableRows  = 10_000
	tableBytes = 64 << 20
)

// NewWriter begins a file, compressed with zstd.
func (c *Columns) NewWriter(w io.Writer) (*TableWriter, error) {
	options, err := c.metadata()
	root := &typedNode{Node: parquet.Group{}}
	for _, n := range c.list {
		root.fields = append(root.fields, n)
	}
	schema := parquet.NewSchema("schema", root)
	for _, path := range schema.Columns() {
		leaf, _ := schema.Lookup(path...) // the schema names it
		switch logicalOf(leaf.Node.Type()).(type) {
		case *format.DecimalType, *format.Float16Type:
			options = append(options, parquet.SkipPageBounds(path...)) // the library would order them as bytes
		}
	}
	options = append(options, schema, parquet.MaxRowsPerRowGroup(tableRows), parquet.Compression(&zstd.Codec{}))
	return &TableWriter{Writer: parquet.NewWriter(w, options...), c: c}, err
}

// Add writes a row, of which value gives the columns in JSON, as rows of tables are read; nil is null.
func (t *TableWriter) Add(value func(name string) json.RawMessage) error {
	var e rowEncoder
	for _, n := range t.c.list {
		v := orNull(value(n.name))
		t.n += len(v)
		if err := e.field(n, v, place{column: len(e)}); err != nil {
			return fmt.Errorf("column %q, %s in %s: %w", n.name, n.kind(), n.file, err)
		}
	}
	_, err := t.WriteRows([]parquet.Row{slices.Concat(e...)})
	if err != nil || t.n < tableBytes {
		return err
	}
	t.n = 0
	return t.Flush()
}
