package format

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/dataset/store"
)

// mdsShardFiles are the shards of a folder by their names, in order: of a writer that was stopped before it wrote
// the index, or of a folder that was copied without it.
func mdsShardFiles(at string) (out []string) {
	if store.Scheme(at) != "" {
		return nil
	}
	for _, ending := range append([]string{""}, compressedSuffixes...) {
		found, err := filepath.Glob(filepath.Join(at, "shard.*.mds"+ending))
		if err == nil {
			out = append(out, found...)
		}
	}
	slices.Sort(out)
	return out
}

// mdsUnindexed is what an index would say of a folder that has none: every shard says its columns itself.
func mdsUnindexed(at string) (shards []mdsShard, err error) {
	for _, path := range mdsShardFiles(at) {
		s, err := mdsHeader(path)
		if err != nil {
			return nil, fmt.Errorf("%s, in a folder without %s: %w", filepath.Base(path), mdsIndexName, err)
		}
		shards = append(shards, s)
	}
	if len(shards) == 0 {
		return nil, fmt.Errorf("there is neither %s nor a shard.*.mds: %w", mdsIndexName, os.ErrNotExist)
	}
	return shards, nil
}

// mdsHeader reads what a shard says of itself: the number of samples, where each lies, and the columns as JSON.
func mdsHeader(path string) (s mdsShard, err error) {
	f, err := openContent(path)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var b [8]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return s, fmt.Errorf("it has no header: %w", err)
	}
	n, first := int64(binary.LittleEndian.Uint32(b[:])), int64(binary.LittleEndian.Uint32(b[4:]))
	from := 4 + 4*(n+1)
	const headerMax = 1 << 20
	if from > first || first > f.Size() || first-from > headerMax {
		return s, fmt.Errorf("it tells %d samples from byte %d on, of %d bytes", n, first, f.Size())
	}
	text := make([]byte, first-from)
	if _, err := f.ReadAt(text, from); err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("its columns: %w", err)
	}
	s.Samples, s.Raw, s.Zip = n, mdsFile{Name: filepath.Base(path), Bytes: f.Size()}, nil
	return s, nil
}
