package format

import (
	"fmt"
	"math/big"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/parquet-go/parquet-go"

	"github.com/lfactor/lfactor/dataset/store"
)

// arrowLeaves are Parquet's types for those of Arrow that have nothing more to say.
var arrowLeaves = map[arrow.Type]parquet.Node{
	arrow.NULL: parquet.Leaf(parquet.NullType), arrow.BOOL: parquet.Leaf(parquet.BooleanType),
	arrow.INT8: parquet.Int(8), arrow.INT16: parquet.Int(16), arrow.INT32: parquet.Int(32), arrow.INT64: parquet.Int(64),
	arrow.UINT8: parquet.Uint(8), arrow.UINT16: parquet.Uint(16), arrow.UINT32: parquet.Uint(32),
	arrow.UINT64: parquet.Uint(64), arrow.FLOAT16: parquet.Leaf(halfType{parquet.FixedLenByteArrayType(2)}),
	arrow.FLOAT32: parquet.Leaf(parquet.FloatType), arrow.FLOAT64: parquet.Leaf(parquet.DoubleType),
	arrow.STRING: parquet.String(), arrow.LARGE_STRING: parquet.String(), arrow.STRING_VIEW: parquet.String(),
	arrow.BINARY: parquet.Leaf(parquet.ByteArrayType), arrow.LARGE_BINARY: parquet.Leaf(parquet.ByteArrayType),
	arrow.BINARY_VIEW: parquet.Leaf(parquet.ByteArrayType), arrow.DATE32: parquet.Date(), arrow.DATE64: parquet.Date(),
	arrow.DURATION: parquet.Leaf(parquet.Int64Type),
}

// arrowUnits are Parquet's units of time for Arrow's, of which it has no seconds.
var arrowUnits = []parquet.TimeUnit{arrow.Second: parquet.Millisecond, arrow.Millisecond: parquet.Millisecond,
	arrow.Microsecond: parquet.Microsecond, arrow.Nanosecond: parquet.Nanosecond}

// typedArrows are the columns of a file, with an error where Parquet has no type for one.
func typedArrows(path string) (*Columns, error) {
	f, err := store.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a := &arrowFile{rowGroups: rowGroups{os: f}}
	if err := guard(a.readSchema); err != nil {
		return nil, err
	}
	c := &Columns{meta: a.schema.Metadata().ToMap()}
	for _, f := range a.schema.Fields() {
		n := &typedNode{name: f.Name, arrow: &f, file: path}
		if bad := n.ofArrow(f); bad != nil {
			err = bad
		}
		c.list = append(c.list, n)
	}
	return c, err
}

// ofArrow makes a node Parquet's of a column of Arrow (LogicalTypes.md; lists and maps of three levels).
func (n *typedNode) ofArrow(f arrow.Field) (err error) {
	nest := func(annotation parquet.Node, repeated string, fields ...arrow.Field) {
		n.Node = annotation
		for _, g := range fields {
			of := &typedNode{name: g.Name}
			if bad := of.ofArrow(g); bad != nil {
				err = bad
			}
			n.fields = append(n.fields, of)
		}
		if repeated != "" {
			n.fields = []parquet.Field{&typedNode{Node: parquet.Repeated(parquet.Group{}), name: repeated, fields: n.fields}}
		}
	}
	switch t := f.Type.(type) {
	case *arrow.TimestampType:
		n.Node = parquet.TimestampAdjusted(arrowUnits[t.Unit], t.TimeZone != "")
	case *arrow.Time32Type:
		n.Node = parquet.Time(arrowUnits[t.Unit])
	case *arrow.Time64Type:
		n.Node = parquet.Time(arrowUnits[t.Unit])
	case *arrow.FixedSizeBinaryType:
		n.Node = parquet.Leaf(parquet.FixedLenByteArrayType(t.ByteWidth))
	case arrow.DecimalType:
		top := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.GetPrecision())), nil)
		n.Node = parquet.Decimal(int(t.GetScale()), int(t.GetPrecision()), parquet.FixedLenByteArrayType(top.BitLen()/8+1))
	case *arrow.DictionaryType:
		f.Type = t.ValueType
		return n.ofArrow(f)
	case arrow.ExtensionType:
		f.Type = t.StorageType()
		return n.ofArrow(f)
	case *arrow.StructType:
		nest(parquet.Group{}, "", t.Fields()...)
	case *arrow.MapType:
		nest(parquet.Map(parquet.String(), parquet.String()), "key_value", t.KeyField(), t.ItemField())
	case arrow.ListLikeType:
		nest(parquet.List(parquet.String()), "list", arrow.Field{Name: "element", Type: t.Elem(), Nullable: t.ElemField().Nullable})
	default:
		if n.Node = arrowLeaves[t.ID()]; n.Node == nil {
			return fmt.Errorf("column %q: Parquet has no type for Arrow's %s", f.Name, t)
		}
	}
	if n.Leaf() {
		n.leaf = n.Node.Type()
	}
	if f.Nullable || n.leaf == parquet.NullType {
		n.Node = parquet.Optional(n.Node)
	}
	return err
}
