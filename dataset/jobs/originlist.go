package jobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/store"
	"github.com/lfactor/lfactor/topology/machine"
)

var _ = registerOrigin(OriginKind{"list", "one file, or object, that names a shard a line and grows",
	func(c FollowConfig) (origin, error) {
		if c.Marker != "" {
			return nil, errors.New("a marker is of files; what a list names is whole")
		}
		return &list{path: c.Pattern, numbers: map[string]int{}, record: filepath.Join(c.Output, listRecord)}, nil
	}})

// list is a file that names shards and grows: a line is a path or an address, or a JSON object of a named.
type list struct {
	path    string
	record  string // file that tells further processes what was read
	read    int64  // bytes that were read
	sum     []byte // SHA-256 of them
	entries []named
	numbers map[string]int // of entries, by their shards' identities
	last    offer          // the list as it was when it was read last
}

// named is a shard that a producer names.
type named struct {
	Path   string `json:"path"` // from the folder of the list or ticket on, or an address
	Bytes  *int64 `json:"bytes"`
	SHA256 string `json:"sha256"`
	where  string // for people
	shard  string // where it lies
	id     string // its name in ledgers
}

// listMax bounds a list, which is read as a whole.
const listMax = 1 << 28

// readWhole reads a small file or object.
func readWhole(path string, most int64) ([]byte, error) {
	f, err := store.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size() > most {
		return nil, fmt.Errorf("%s: %d bytes, over the limit of %d", store.Redact(path), f.Size(), most)
	}
	b := make([]byte, f.Size())
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// parseNamed reads a line of a list, or a ticket, whose file is given.
func parseNamed(text []byte, file, where string) (n named, err error) {
	text = bytes.TrimSpace(text)
	if len(text) > 0 && text[0] == '{' {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&n); err != nil {
			return n, fmt.Errorf("%s: %w; want {\"path\": …, \"bytes\": …, \"sha256\": …}", where, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return n, fmt.Errorf("%s: more stands behind its JSON object; it names one shard", where)
		}
	} else {
		n.Path = string(text)
	}
	if n.Path == "" || strings.ContainsAny(n.Path, "\n\x00") || n.Bytes != nil && *n.Bytes < 0 {
		return n, fmt.Errorf("%s: it names no shard; want its path, or {\"path\": …, \"bytes\": …, "+
			"\"sha256\": …}", where)
	}
	if b, err := hex.DecodeString(n.SHA256); err != nil || n.SHA256 != "" && len(b) != sha256.Size {
		return n, fmt.Errorf("%s: its sha256 is not 64 hexadecimal digits", where)
	}
	n.where, n.shard = where, n.Path
	switch remote := store.Scheme(file) != ""; {
	case store.Scheme(n.Path) != "":
	case remote && (strings.HasPrefix(n.Path, "/") || slices.Contains(strings.Split(n.Path, "/"), "..")):
		// who may write to a store has no say over the files of the host that follows
		return n, fmt.Errorf("%s: it names %s, and a list in a store names shards below its own folder, or "+
			"addresses of a store", where, n.Path)
	case filepath.IsAbs(n.Path):
	case remote:
		n.shard = file[:strings.LastIndexByte(file, '/')+1] + n.Path
	default:
		n.shard = filepath.Join(filepath.Dir(file), filepath.FromSlash(n.Path))
	}
	n.id = identity(n.shard)
	return n, nil
}

// offer is a named shard as it is now.
func (n named) offer() offer {
	o, err := offerOf(n.shard)
	switch {
	case err != nil: // a store tells in its own words
		o.waits, o.absent = n.where+" names it, and it cannot be read: "+err.Error(), true
		o.unanswered = store.Scheme(n.shard) != "" && !store.Missing(err)
	case o.name == "":
		o.waits, o.absent = n.where+" names it, and it is no file", true
	case n.Bytes != nil && *n.Bytes != o.size:
		o.waits = fmt.Sprintf("%s says that it has %d bytes, and it has %d: it is half written, or another one",
			n.where, *n.Bytes, o.size)
	}
	o.name, o.at = n.id, n.shard
	o.whole, o.sum, o.stated = true, strings.ToLower(n.SHA256), n.Bytes
	return o
}

// asked is a named shard as it is now, or unasked where so many are whole already as may be taken.
func (n named) asked(room *int64) offer {
	if *room <= 0 {
		return offer{name: n.id, at: n.shard, unasked: true}
	}
	o := n.offer()
	if o.waits == "" {
		*room--
	}
	return o
}

// grow reads what is new in the list.
func (l *list) grow() error {
	now, err := offerOf(l.path)
	if err == nil && now == l.last && (now.version != "") {
		return nil // nothing is new, as the store tells; a date of a file may be set
	}
	b, err := readWhole(l.path, listMax)
	if err != nil {
		return err
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1] // a last line that is being written does not count
	if err := l.kept(b); err != nil {
		return fatalOrigin{err}
	}
	if int64(len(b)) == l.read {
		l.last = now
		return nil
	}
	for line := range bytes.Lines(b[l.read:]) {
		if len(bytes.TrimSpace(line)) == 0 || line[0] == '#' {
			continue
		}
		n, err := parseNamed(line, l.path, fmt.Sprintf("%s, shard %d", store.Redact(l.path), len(l.entries)+1))
		if err != nil {
			return fatalOrigin{err}
		}
		if i, ok := l.numbers[n.id]; ok {
			return fatalOrigin{fmt.Errorf("%s: shard %d names it too; a shard comes once: put what is new under "+
				"a new name", n.where, i+1)}
		}
		l.numbers[n.id] = len(l.entries)
		l.entries = append(l.entries, n)
	}
	sum := sha256.Sum256(b)
	l.read, l.sum, l.last = int64(len(b)), sum[:], now
	if err := l.note(); err != nil {
		return fatalOrigin{err}
	}
	return nil
}

// kept says whether a list begins with what was read of it, by this process or one before.
func (l *list) kept(b []byte) error {
	read, sum := l.read, l.sum
	if read == 0 {
		was, err := l.recorded()
		if err != nil {
			return err
		}
		read, sum = was.Bytes, was.SHA256
	}
	if int64(len(b)) < read {
		return fmt.Errorf("%s: it has %d bytes of lines and had %d: a list only grows; put back what was in it, "+
			"or follow another list into another folder", store.Redact(l.path), len(b), read)
	}
	if now := sha256.Sum256(b[:read]); read > 0 && !bytes.Equal(now[:], sum) {
		return fmt.Errorf("%s: its first %d lines are not what they were: a list only grows; put them back, or "+
			"follow another list into another folder", store.Redact(l.path), bytes.Count(b[:read], []byte("\n")))
	}
	return nil
}

// listRecord is the file beside a ledger that tells how much of a list was read.
const listRecord = "list.json"

// listRead is what it holds.
type listRead struct {
	List   string `json:"list"`
	Bytes  int64  `json:"bytes"`
	SHA256 []byte `json:"sha256"` // of these bytes, in base64
}

// recorded is what processes before this one have read of the list.
func (l *list) recorded() (r listRead, err error) {
	b, err := os.ReadFile(l.record)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil && (r.Bytes < 0 || r.List == "") {
		err = errors.New("it names no list and its bytes")
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w; remove it if the list has only grown", l.record, err)
	}
	if r.List != store.Redact(l.path) { // another list: its shards have names of their own
		return listRead{}, nil
	}
	return r, nil
}

// note tells further processes what was read.
func (l *list) note() error {
	b, err := json.Marshal(listRead{store.Redact(l.path), l.read, l.sum})
	if err != nil {
		return err
	}
	return machine.ReplaceBytes(l.record, 0o644, append(b, '\n'))
}

func (l *list) offers(taken func(string) bool, room int64) (out []offer, err error) {
	if err := l.grow(); err != nil {
		return nil, err
	}
	for _, n := range l.entries {
		if !taken(n.id) {
			out = append(out, n.asked(&room))
		}
	}
	return out, nil
}

func (l *list) done(func(string) bool) error { return nil }
func (l *list) refused(string) error         { return nil }

// fatalOrigin is an error that looking again does not mend.
type fatalOrigin struct{ error }

func (e fatalOrigin) Unwrap() error { return e.error }
