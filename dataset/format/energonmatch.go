package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/dataset/store"
)

// keyed is a source that tells the key of a sample without reading it, "" where that is broken, and what
// its file is and when it was changed.
type keyed interface {
	key(i int64) (string, error)
	state() string
}

// state implements keyed.
func (s *shard) state() string {
	path, err := filepath.Abs(s.file.Name())
	if err != nil {
		path = s.file.Name()
	}
	return HashOf(path, s.file.Size(), s.file.Version())
}

// state implements keyed.
func (c *chosen) state() string { return c.shard.state() }

// keyHash stands for a key: 128 bits of two seeds of this process, so that no two keys have one.
type keyHash [2]uint64

// keySeeds are the seeds of a match.
type keySeeds [2]maphash.Seed

func (s keySeeds) of(key string) keyHash {
	return keyHash{maphash.String(s[0], key), maphash.String(s[1], key)}
}

// hashes reads the keys of a set, each once; a broken one has the hash of zeros.
func (s *joinSet) hashes(seeds keySeeds) (out []keyHash, err error) {
	out = make([]keyHash, 0, s.Len())
	for _, p := range s.parts {
		for i := range p.Len() {
			key, err := p.(keyed).key(i)
			if err != nil {
				return nil, err
			}
			var h keyHash
			if key != "" {
				h = seeds.of(key)
			}
			out = append(out, h)
		}
	}
	return out, nil
}

// keyAt is the key of a sample of the set.
func (s *joinSet) keyAt(i int64) (string, error) {
	for _, p := range s.parts {
		if i < p.Len() {
			return p.(keyed).key(i)
		}
		i -= p.Len()
	}
	return "", fmt.Errorf("%s has no sample %d", s.path, i)
}

// table finds the samples of a set by the hashes of their keys. A key that comes twice is an error.
func (s *joinSet) table(keys []keyHash) (map[keyHash]int64, error) {
	t := make(map[keyHash]int64, len(keys))
	for i, h := range keys {
		if h == (keyHash{}) {
			continue
		}
		if _, twice := t[h]; twice {
			key, err := s.keyAt(int64(i))
			if err == nil {
				err = fmt.Errorf("%s: the key %q comes twice, and samples are joined by keys", s.path, Clip(key))
			}
			return nil, err
		}
		t[h] = int64(i)
	}
	return t, nil
}

// match finds the rows: samples of the first set with those of the others. One that is broken stays, to show.
func (j *joined) match(list []metaJoin) error {
	seeds := keySeeds{maphash.MakeSeed(), maphash.MakeSeed()}
	var first []keyHash
	tables := make([]map[keyHash]int64, len(j.sets))
	for k, s := range j.sets { // the first one's too, for keys that come twice
		keys, err := s.hashes(seeds)
		if err == nil {
			tables[k], err = s.table(keys)
		}
		if err != nil {
			return err
		}
		if k == 0 {
			first, tables[0] = keys, nil
		}
	}
	j.rows = make([][]int64, len(j.sets))
	row := make([]int64, len(j.sets))
rows:
	for i, h := range first {
		row[0] = int64(i)
		for k := 1; k < len(j.sets); k++ {
			at, ok := tables[k][h]
			how := or(list[k].Nonmatch, joinError)
			if !ok {
				at = -1
			}
			if !ok && h != (keyHash{}) && how != joinNone {
				if how == joinSkip {
					continue rows
				}
				key, err := j.sets[0].keyAt(int64(i))
				if err != nil {
					return err
				}
				return fmt.Errorf("the sample %q of %s is not in %s; set nonmatch there to skip or none",
					Clip(key), j.sets[0].path, j.sets[k].path)
			}
			row[k] = at
		}
		for k, at := range row {
			j.rows[k] = append(j.rows[k], at)
		}
	}
	return nil
}

// matched finds the rows as match does, or takes them from the cache where an earlier opening has found them for
// the same files.
func (j *joined) matched(list []metaJoin) error {
	var sets, ways []string
	for k, s := range j.sets {
		for _, p := range s.parts {
			sets = append(sets, p.(keyed).state(), p.Fingerprint(), fmt.Sprint(p.Len()))
		}
		sets = append(sets, "|")
		ways = append(ways, or(list[k].Nonmatch, joinError))
	}
	var failed error
	made := false
	b, err := store.Kept(HashOf("joined rows 1", sets, ways), func() ([]byte, error) {
		made = true
		if failed = j.match(list); failed != nil {
			return nil, failed
		}
		return j.encodeRows(), nil
	})
	if made {
		return failed
	}
	if err == nil && j.decodeRows(b) == nil {
		return nil
	}
	return j.match(list)
}

// encodeRows writes the rows, each number as how far it is from the one before it in its set.
func (j *joined) encodeRows() []byte {
	b := binary.AppendUvarint(nil, uint64(len(j.rows[0])))
	for _, list := range j.rows {
		before := int64(0)
		for _, at := range list {
			b = binary.AppendVarint(b, at-before)
			before = at
		}
	}
	return b
}

var errRows = errors.New("format: these are no rows of the join")

// decodeRows reads what encodeRows has written.
func (j *joined) decodeRows(b []byte) error {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(j.sets[0].Len()) {
		return errRows
	}
	b = b[k:]
	rows := make([][]int64, len(j.sets))
	for i, s := range j.sets {
		before := int64(0)
		rows[i] = slices.Grow(rows[i], int(n))
		for range n {
			d, k := binary.Varint(b)
			before += d
			if k <= 0 || before < -1 || before >= s.Len() {
				return errRows
			}
			b = b[k:]
			rows[i] = append(rows[i], before)
		}
	}
	if len(b) > 0 {
		return errRows
	}
	j.rows = rows
	return nil
}
