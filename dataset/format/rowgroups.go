package format

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"sync"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// rowGroupsBytesMax is how much of a file's decoded row groups is kept.
const rowGroupsBytesMax = 512 << 20

// rowGroups gives the rows of a table's file as bytes, decoding a group of rows at a time; the last ones used are kept.
type rowGroups struct {
	os     store.File
	print  string
	limit  int64
	ends   []int64 // rows up to and with each group
	decode func(k int) ([][]byte, error)

	mu     sync.Mutex
	groups map[int]*list.Element
	recent *list.List // of decodedGroup, the last used in front
	bytes  int64
}

type decodedGroup struct {
	group int
	rows  [][]byte
	bytes int64
	err   error // of content: reading again would give it again
}

// newRowGroups returns a file whose groups are not known yet.
func newRowGroups(f store.File, o dataset.Options) rowGroups {
	return rowGroups{os: f, limit: o.Limit(), groups: map[int]*list.Element{}, recent: list.New()}
}

// guard turns a panic of a library on a damaged file into an error.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("damaged: %v", r)
		}
	}()
	return f()
}

// Len counts a file without rows as one bad document.
func (p *rowGroups) Len() int64 {
	if len(p.ends) == 0 {
		return 1
	}
	return max(1, p.ends[len(p.ends)-1])
}

func (p *rowGroups) Fingerprint() string { return p.print }
func (p *rowGroups) Close() error        { return p.os.Close() }

// Record returns row i, nil where it is null. The place's offset is the row's number.
func (p *rowGroups) Record(i int64) ([]byte, dataset.Place, error) {
	place := dataset.Place{File: p.os.Name(), Offset: i}
	bad := func(format string, args ...any) error {
		return &dataset.BadSample{Place: place, Reason: fmt.Sprintf("row %d: ", i) + fmt.Sprintf(format, args...)}
	}
	k := sort.Search(len(p.ends), func(k int) bool { return p.ends[k] > i })
	if k == len(p.ends) {
		return nil, place, bad("the file has no rows")
	}
	g, err := p.group(k)
	if err != nil {
		return nil, place, err
	}
	if g.err != nil {
		return nil, place, bad("row group %d: %v", k, g.err)
	}
	if k > 0 {
		i -= p.ends[k-1]
	}
	if i >= int64(len(g.rows)) {
		return nil, place, bad("row group %d has %d rows, fewer than it says", k, len(g.rows))
	}
	b := g.rows[i]
	if int64(len(b)) > p.limit {
		return nil, place, bad("%d bytes are over the limit of %d", len(b), p.limit)
	}
	return b, place, checkUTF8(b, place)
}

// group returns a row group, decoded. Only an error of the moment is an error.
func (p *rowGroups) group(k int) (decodedGroup, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.groups[k]; ok {
		p.recent.MoveToFront(e)
		return e.Value.(decodedGroup), nil
	}
	g := decodedGroup{group: k}
	g.err = guard(func() (err error) {
		g.rows, err = p.decode(k)
		return err
	})
	var io *fs.PathError
	if errors.As(g.err, &io) {
		return g, g.err
	}
	for _, r := range g.rows {
		g.bytes += int64(len(r)) + 24
	}
	p.groups[k] = p.recent.PushFront(g)
	for p.bytes += g.bytes; p.bytes > rowGroupsBytesMax && p.recent.Len() > 1; {
		old := p.recent.Remove(p.recent.Back()).(decodedGroup)
		delete(p.groups, old.group)
		p.bytes -= old.bytes
	}
	return g, nil
}
