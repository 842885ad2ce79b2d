package format

import (
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// A table is a file of rows, in a format whose columns are read as the members of JSON objects.
type tableFormat struct {
	is      func(path string, head []byte) bool
	columns func(path string) (*Columns, error)
	open    func(path string, o dataset.Options) (Records, error)
}

var tableFormats []tableFormat

// registerTable adds a format of tables; a file calls it in a variable's declaration.
func registerTable(t tableFormat) bool {
	tableFormats = append(tableFormats, t)
	return true
}

// tableOf returns the format of a table, nil where a file is none.
func tableOf(path string, head []byte) *tableFormat {
	for i := range tableFormats {
		if tableFormats[i].is(path, head) {
			return &tableFormats[i]
		}
	}
	return nil
}

// tableHead is how much of a file tells whether it is a table.
const tableHead = 16

// openObjects opens records: the rows of a table, else JSON lines or an array.
func openObjects(path string, o dataset.Options) (Records, error) {
	t := tableOf(path, nil)
	if t == nil {
		t = tableOf(path, store.Head(path, tableHead))
	}
	if t == nil {
		return OpenJSON(path, o)
	}
	r, err := t.open(path, o)
	if err != nil {
		return nil, err
	}
	return filled{r}, nil
}

// holdsObjects says whether a file has objects of the shape that shapeOf calls by a name.
func holdsObjects(path string, head []byte, name string) bool {
	if t := tableOf(path, head); t != nil {
		return tableShape(t.columns, path) == name
	}
	return holdsJSON(path, head) && shapeOf(keysOf(head)) == name
}

// mayHoldObjects says whether a file can have objects of any shape.
func mayHoldObjects(path string, head []byte) bool {
	return tableOf(path, head) != nil || holdsJSON(path, head)
}

// tableShape is the shape of a table's rows, as shapeOf calls it.
func tableShape(columns func(path string) (*Columns, error), path string) string {
	c, _ := columns(path) // whoever opens it says why it cannot be read
	return shapeOf(c.names())
}
