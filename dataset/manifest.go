package dataset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset/store"
)

// Generation is shards that have come to a growing data set together: an event of its ledger. Each is one line of JSON
// in a file that only grows, and names the line before by its hash, so that what was said is never taken back.
type Generation struct {
	Number int64   `json:"generation"` // from 0
	Shards []Shard `json:"shards,omitempty"`
	End    bool    `json:"end,omitempty"` // nothing follows; it has no shards
	Before string  `json:"before"`        // hash of the line before, "" for the first
}

// Shard is a file of a generation.
type Shard struct {
	Path  string `json:"path"` // from the folder of the ledger on
	Bytes int64  `json:"bytes"`
	Print string `json:"print"` // of the content, as format.PrintFile gives it
	From  string `json:"from"`  // where it was taken from
	// Changed is when the file there had last changed, in nanoseconds since 1970.
	Changed int64 `json:"changed"`
	// Version is what a store called the object's content, its ETag.
	Version string `json:"version,omitempty"`
}

// ManifestName is the name of the ledger of a growing data set in its folder.
const ManifestName = "manifest.jsonl"

// manifestMax bounds a ledger that is read: some 10⁶ shards.
const manifestMax = 1 << 28

// LineHash is what the line behind a line of a manifest names it by.
func LineHash(line []byte) string {
	h := sha256.Sum256(bytes.TrimRight(line, "\n"))
	return hex.EncodeToString(h[:16])
}

// ReadManifest reads the ledger of a growing data set, and returns how many bytes of it are whole lines. A
// last line that is being written does not count.
func ReadManifest(path string) (list []Generation, whole int64, err error) {
	f, err := store.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	if f.Size() > manifestMax {
		return nil, 0, fmt.Errorf("%s: %d bytes, over the limit of %d", store.Redact(path), f.Size(), manifestMax)
	}
	text := make([]byte, f.Size())
	if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	before := ""
	for l := range bytes.Lines(text) {
		g := Generation{}
		place := fmt.Sprintf("%s:%d", store.Redact(path), len(list)+1)
		if err := json.Unmarshal(l, &g); err != nil {
			return nil, 0, fmt.Errorf("%s: it is no line of a growing data set's ledger: %w", place, err)
		}
		switch {
		case g.Number != int64(len(list)) || g.Before != before:
			return nil, 0, fmt.Errorf("%s: it does not follow the line before: the file was changed; restore it", place)
		case len(list) > 0 && list[len(list)-1].End:
			return nil, 0, fmt.Errorf("%s: it follows the end", place)
		case g.End == (len(g.Shards) > 0):
			return nil, 0, fmt.Errorf("%s: a generation has shards, and the end has none", place)
		}
		before = LineHash(l)
		list = append(list, g)
	}
	return list, int64(len(text)), nil
}

// ShardPath is where a shard of a manifest lies.
func ShardPath(manifest string, s Shard) string {
	if store.Scheme(manifest) != "" {
		return manifest[:bytes.LastIndexByte([]byte(manifest), '/')+1] + s.Path
	}
	return filepath.Join(filepath.Dir(manifest), filepath.FromSlash(s.Path))
}
