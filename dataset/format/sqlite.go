package format

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"
)

// sqliteFile writes a SQLite database from rows that come in order: each table and index is a B-tree filled from left
// to right. Nothing is ever changed or read. Source: the database file format, sqlite.org/fileformat2.html.
type sqliteFile struct {
	out    *os.File
	buf    *bufio.Writer
	pages  uint32 // written, the first included, which is written last
	schema [][]byte
	err    error
}

const (
	sqlitePage = 16384 // bytes
	// sqliteCellMax is the largest index entry that needs no overflow page.
	sqliteCellMax = (sqlitePage-12)*64/255 - 23
)

// createSQLite begins a database file. The first page is left empty, because what it says is known only at the end.
func createSQLite(path string) (*sqliteFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w := &sqliteFile{out: f, buf: bufio.NewWriterSize(f, 1<<20), pages: 1}
	_, w.err = w.buf.Write(make([]byte, sqlitePage))
	return w, nil
}

// define enters a table or index whose tree was written. sql is empty for the index that a UNIQUE column brings along.
func (w *sqliteFile) define(kind, name, table string, root uint32, sql string) {
	var text any = sql
	if sql == "" {
		text = nil
	}
	w.schema = append(w.schema, sqliteRecord(kind, name, table, int64(root), text))
}

// close writes the schema and the header.
func (w *sqliteFile) close() error {
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	p := newSQLitePage(0x0d, 100)
	for i, r := range w.schema {
		p.add(sqliteRow(int64(i+1), r))
	}
	b := p.bytes(0)
	copy(b, "SQLite format 3\x00")
	binary.BigEndian.PutUint16(b[16:], sqlitePage&0xffff)
	copy(b[18:], []byte{1, 1, 0, 64, 32, 32})
	for at, v := range map[int]uint32{24: 1, 28: w.pages, 40: 1, 44: 4, 56: 1, 92: 1, 96: 3045000} {
		binary.BigEndian.PutUint32(b[at:], v)
	}
	if w.err == nil {
		_, w.err = w.out.WriteAt(b, 0)
	}
	if err := w.out.Close(); w.err == nil {
		w.err = err
	}
	return w.err
}

// page writes a page and returns its number.
func (w *sqliteFile) page(p *sqliteCells, right uint32) uint32 {
	if w.err == nil {
		_, w.err = w.buf.Write(p.bytes(right))
	}
	w.pages++
	return w.pages
}

// table writes rows 1 to n and returns the root of their tree.
func (w *sqliteFile) table(n int, row func(i int) []byte) uint32 {
	type child struct {
		page uint32
		last int64 // row
	}
	var level []child
	p := newSQLitePage(0x0d, 0)
	for i := range n {
		cell := sqliteRow(int64(i+1), row(i))
		if !p.fits(cell) {
			level = append(level, child{w.page(p, 0), int64(i)})
			p = newSQLitePage(0x0d, 0)
		}
		p.add(cell)
	}
	level = append(level, child{w.page(p, 0), int64(n)})
	for len(level) > 1 {
		var up []child
		p := newSQLitePage(0x05, 0)
		for i, c := range level {
			cell := sqliteVarint(binary.BigEndian.AppendUint32(nil, c.page), uint64(c.last))
			if i == len(level)-1 || !p.fits(cell) || len(level)-i == 3 && !p.fits(make([]byte, 2*len(cell))) {
				up = append(up, child{w.page(p, c.page), c.last})
				p = newSQLitePage(0x05, 0)
				continue
			}
			p.add(cell)
		}
		level = up
	}
	return level[0].page
}

// sqliteChild is a page of an index and the entry that separates it from the next.
type sqliteChild struct {
	page  uint32
	entry []byte
}

// index writes n entries, in order, and returns the root of their tree.
func (w *sqliteFile) index(n int, entry func(i int) []byte) uint32 {
	cell := func(e []byte) []byte { return append(sqliteVarint(nil, uint64(len(e))), e...) }
	level, right := w.level(0x0a, n, func(i int) (sqliteChild, []byte) {
		e := entry(i)
		if len(e) > sqliteCellMax && w.err == nil {
			w.err = fmt.Errorf("index: an entry of %d bytes is over the limit of %d; shorten the keys",
				len(e), sqliteCellMax)
		}
		return sqliteChild{entry: e}, cell(e)
	}, 0)
	for len(level) > 0 {
		below, last := level, right
		level, right = w.level(0x02, len(below), func(i int) (sqliteChild, []byte) {
			c := below[i]
			return c, append(binary.BigEndian.AppendUint32(nil, c.page), cell(c.entry)...)
		}, last)
	}
	return right
}

// level writes one level of an index: pages, of which the entries between them go up, and the last page.
// last is the rightmost child of the level below.
func (w *sqliteFile) level(kind byte, n int, item func(i int) (sqliteChild, []byte),
	last uint32) (up []sqliteChild, right uint32) {
	p := newSQLitePage(kind, 0)
	var before sqliteChild // the item last added
	for i := range n {
		c, cell := item(i)
		if p.fits(cell) {
			p.add(cell)
			before = c
			continue
		}
		if i < n-1 {
			up = append(up, sqliteChild{w.page(p, c.page), c.entry})
			p = newSQLitePage(kind, 0)
			continue
		}
		p.drop() // no page may be left empty: the entry before goes up, and this one is the last page's
		up = append(up, sqliteChild{w.page(p, before.page), before.entry})
		p = newSQLitePage(kind, 0)
		p.add(cell)
	}
	return up, w.page(p, last)
}

// sqliteCells is a page being filled.
type sqliteCells struct {
	kind   byte
	header int // bytes before the page's own header
	cells  [][]byte
	used   int
}

func newSQLitePage(kind byte, header int) *sqliteCells {
	return &sqliteCells{kind: kind, header: header, used: header + 12}
}

func (p *sqliteCells) fits(cell []byte) bool { return p.used+len(cell)+2 <= sqlitePage }
func (p *sqliteCells) add(cell []byte) {
	p.cells, p.used = append(p.cells, cell), p.used+len(cell)+2
}

// drop takes the last cell off the page again; each cell takes two more bytes for its pointer.
func (p *sqliteCells) drop() {
	n := len(p.cells) - 1
	p.used -= len(p.cells[n]) + 2
	p.cells = p.cells[:n]
}

// bytes lays the page out. right is the rightmost child of an inner page.
func (p *sqliteCells) bytes(right uint32) []byte {
	b := make([]byte, sqlitePage)
	h := b[p.header:]
	h[0] = p.kind
	binary.BigEndian.PutUint16(h[3:], uint16(len(p.cells)))
	at := p.header + 8
	if p.kind == 0x05 || p.kind == 0x02 {
		binary.BigEndian.PutUint32(h[8:], right)
		at += 4
	}
	end := sqlitePage
	for _, c := range p.cells {
		end -= len(c)
		copy(b[end:], c)
		binary.BigEndian.PutUint16(b[at:], uint16(end))
		at += 2
	}
	binary.BigEndian.PutUint16(h[5:], uint16(end&0xffff))
	return b
}

// sqliteRow is a cell of a table's leaf.
func sqliteRow(id int64, record []byte) []byte {
	return append(sqliteVarint(sqliteVarint(nil, uint64(len(record))), uint64(id)), record...)
}

// sqliteVarint appends a number, seven bits a byte, the highest first. Numbers here stay below 2⁵⁶.
func sqliteVarint(b []byte, v uint64) []byte {
	if v >= 1<<56 {
		panic("format: a number too large for a SQLite varint of eight bytes")
	}
	shift := 0
	for v>>shift >= 1<<7 {
		shift += 7
	}
	for ; shift > 0; shift -= 7 {
		b = append(b, byte(v>>shift)|0x80)
	}
	return append(b, byte(v)&0x7f)
}

// sqliteRecord encodes values: int64, string or nil.
func sqliteRecord(values ...any) []byte {
	var types, body []byte
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			types = append(types, 0)
		case string:
			types = sqliteVarint(types, uint64(13+2*len(v)))
			body = append(body, v...)
		case int64:
			kind, n := sqliteInt(v)
			types = append(types, kind)
			for i := n - 1; i >= 0; i-- {
				body = append(body, byte(v>>(8*i)))
			}
		default:
			panic(fmt.Sprintf("format: SQLite record of a %T", v))
		}
	}
	head := len(types) + 1
	if head > 127 { // the length counts itself, in two bytes then
		head++
	}
	return append(append(sqliteVarint(nil, uint64(head)), types...), body...)
}

// sqliteInt returns the type of a number in a record and its bytes.
func sqliteInt(v int64) (kind byte, bytes int) {
	switch {
	case v == 0 || v == 1:
		return byte(8 + v), 0
	case v >= math.MinInt8 && v <= math.MaxInt8:
		return 1, 1
	case v >= math.MinInt16 && v <= math.MaxInt16:
		return 2, 2
	case v >= -1<<23 && v < 1<<23:
		return 3, 3
	case v >= math.MinInt32 && v <= math.MaxInt32:
		return 4, 4
	case v >= -1<<47 && v < 1<<47:
		return 5, 6
	}
	return 6, 8
}
