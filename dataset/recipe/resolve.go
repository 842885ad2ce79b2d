package recipe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
)

// appendTail writes what stands behind a key in a block.
func appendTail(k []byte, doc, unit uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(k, doc), unit)
}

// hit is a unit of a document that is a copy.
type hit struct {
	doc, unit uint32 // of the block
	of        uint64 // the original, by its number in the stage
}

// hits are the copies that a step with state has found, in a file: for each block its hits, in order.
type hits struct {
	path  string
	ends  []int64 // documents up to and with each block
	index []int64 // hits up to and with each block
}

// hitBytes is the size of a hit in its file.
const hitBytes = 16

// place is the block that a document of the stage lies in, and its number there.
func (h *hits) place(doc uint64) (u, local int) {
	u = sort.Search(len(h.ends), func(i int) bool { return h.ends[i] > int64(doc) })
	if u > 0 {
		doc -= uint64(h.ends[u-1])
	}
	return u, int(doc)
}

// of reads the hits of a block.
func (h *hits) of(u int) ([]hit, error) {
	from := int64(0)
	if u > 0 {
		from = h.index[u-1]
	}
	n := h.index[u] - from
	if n == 0 {
		return nil, nil
	}
	f, err := os.Open(h.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, n*hitBytes)
	if _, err := f.ReadAt(b, from*hitBytes); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it and start the recipe again", h.path, err)
	}
	out := make([]hit, n)
	for i := range out {
		r := b[i*hitBytes:]
		out[i] = hit{binary.LittleEndian.Uint32(r), binary.LittleEndian.Uint32(r[4:]),
			binary.LittleEndian.Uint64(r[8:])}
	}
	return out, nil
}

// resolve finds the copies among what a stage has signed. What is there already is not done again.
func (f *flow) resolve(ctx context.Context, at int, hosts dataset.Remote) error {
	dir := filepath.Dir(filepath.Dir(f.blockPath(at, 0)))
	h := &hits{path: filepath.Join(dir, "hits")}
	f.hits[at] = h
	total := int64(0)
	for u := range f.units[at] {
		b, err := openBlock(f.blockPath(at, u))
		if err != nil {
			return err
		}
		total += int64(b.head.Docs)
		h.ends = append(h.ends, total)
		if err := b.close(); err != nil {
			return err
		}
	}
	h.index = make([]int64, len(h.ends))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(h.path); err != nil {
		stale, err := filepath.Glob(filepath.Join(dir, ".run-*"))
		for _, p := range stale {
			err = errors.Join(err, os.Remove(p))
		}
		if err != nil {
			return err
		}
		if f.form(at).Clusters {
			err = f.joinClusters(ctx, at, h, dir, total, hosts)
		} else {
			err = f.keepFirst(ctx, at, h, dir, hosts)
		}
		if err != nil {
			return fmt.Errorf("step %q: %w", f.Steps[f.stages[at].step].Name, err)
		}
	}
	return h.load()
}

// load finds where the hits of each block end.
func (h *hits) load() error {
	f, err := os.Open(h.path + ".index")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := binary.Read(bufio.NewReader(f), binary.LittleEndian, h.index); err != nil {
		return fmt.Errorf("%s.index: %w; remove it and %s, and start the recipe again", h.path, err, h.path)
	}
	return nil
}

// write writes hits that come in the order of their documents, with their index first.
func (h *hits) write(all func(emit func(doc uint64, unit uint32, of uint64) error) error) error {
	return writeAtomic(h.path, func(f *os.File) error {
		w := bufio.NewWriterSize(f, 1<<20)
		n, u := int64(0), 0
		err := all(func(doc uint64, unit uint32, of uint64) error {
			for int64(doc) >= h.ends[u] {
				h.index[u] = n
				u++
			}
			n++
			local := doc
			if u > 0 {
				local -= uint64(h.ends[u-1])
			}
			b := binary.LittleEndian.AppendUint32(nil, uint32(local))
			b = binary.LittleEndian.AppendUint32(b, unit)
			_, err := w.Write(binary.LittleEndian.AppendUint64(b, of))
			return err
		})
		for ; u < len(h.index); u++ {
			h.index[u] = n
		}
		if err != nil {
			return err
		}
		if err := writeAtomic(h.path+".index", func(f *os.File) error {
			return binary.Write(f, binary.LittleEndian, h.index)
		}); err != nil {
			return err
		}
		return w.Flush()
	})
}

// keepFirst finds units whose key an earlier one has.
func (f *flow) keepFirst(ctx context.Context, at int, h *hits, dir string, hosts dataset.Remote) error {
	list := newSorter(20, f.Memory/2, dir) // document, unit, original
	defer list.remove()
	for b := range f.form(at).Buckets {
		if err := f.compare(ctx, bucketOf{at, b}, f.Memory/2, dir, h, hosts, list.add); err != nil {
			return err
		}
	}
	return h.write(func(emit func(doc uint64, unit uint32, of uint64) error) error {
		return list.sorted(func(r []byte) error {
			return emit(binary.BigEndian.Uint64(r), binary.BigEndian.Uint32(r[8:]), binary.BigEndian.Uint64(r[12:]))
		})
	})
}

// joinClusters joins documents that share a key in some bucket: pairs are found bucket by bucket, several at
// a time where hosts do not share each, and joined in the order of the buckets.
func (f *flow) joinClusters(ctx context.Context, at int, h *hits, dir string, docs int64, hosts dataset.Remote) error {
	buckets := f.form(at).Buckets
	workers := min(f.Workers, buckets)
	if hosts.Do != nil {
		workers = 1
	}
	pairs := func(b int) string { return filepath.Join(dir, fmt.Sprintf("pairs-%03d", b)) }
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			for b := k; b < buckets && errs[k] == nil; b += workers {
				if _, err := os.Stat(pairs(b)); err != nil {
					errs[k] = f.pairs(ctx, bucketOf{at, b}, f.Memory/int64(workers), dir, h, hosts, pairs(b))
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	room, free := clusterRoom(dir, docs*curate.ClusterBytes, f.Memory)
	defer free()
	c, err := curate.NewClusters(docs, room)
	if err != nil {
		return err
	}
	for b := range buckets {
		if err := join(c, pairs(b)); err != nil {
			return err
		}
	}
	return h.write(func(emit func(doc uint64, unit uint32, of uint64) error) error {
		for i := range uint32(docs) {
			if root := c.Root(i); root != i {
				if err := emit(uint64(i), 0, uint64(root)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// pairs writes the pairs of neighbours with the same key of a bucket, or of keys that are near to each other.
func (f *flow) pairs(ctx context.Context, b bucketOf, memory int64, dir string, h *hits, hosts dataset.Remote,
	path string) error {
	return writeAtomic(path, func(file *os.File) error {
		w := bufio.NewWriterSize(file, 1<<18)
		err := f.compare(ctx, b, memory, dir, h, hosts, func(pair []byte) error {
			_, err := w.Write(pair)
			return err
		})
		return errors.Join(err, w.Flush())
	})
}

// neighbours are the different keys with one prefix that came last.
type neighbours struct {
	form   curate.Form
	put    func(a, b uint64) error
	prefix []byte
	keys   [][]byte // without it
	docs   []uint64
}

// add compares a key with those before it.
func (n *neighbours) add(key []byte, doc uint64) error {
	if n.form.Near == nil {
		return nil
	}
	prefix, rest := key[:n.form.Prefix], slices.Clone(key[n.form.Prefix:])
	if !slices.Equal(prefix, n.prefix) {
		n.prefix, n.keys, n.docs = slices.Clone(prefix), nil, nil
	}
	for i, k := range n.keys {
		if n.form.Near(k, rest) {
			if err := n.put(n.docs[i], doc); err != nil {
				return err
			}
		}
	}
	if len(n.keys) == curate.NearMax {
		n.keys, n.docs = n.keys[1:], n.docs[1:]
	}
	n.keys, n.docs = append(n.keys, rest), append(n.docs, doc)
	return nil
}

// join joins the pairs of a file.
func join(c *curate.Clusters, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<18)
	var b [8]byte
	for {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			if err == io.EOF {
				return nil
			}
			return fmt.Errorf("%s: %w; remove it and start the recipe again", path, err)
		}
		c.Join(binary.LittleEndian.Uint32(b[:]), binary.LittleEndian.Uint32(b[4:]))
	}
}
