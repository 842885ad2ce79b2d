package jobs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/store"
)

// offer is a shard that a producer has put, as it is now.
type offer struct {
	name    string // where it lies, as identity tells it
	at      string // where it is read, "" where that is its name
	size    int64
	changed int64  // nanoseconds since 1970, 0 where its place does not tell
	version string // of an object in a store
	whole   bool   // the producer says that it is: it need not stay as it is for a while
	waits   string // why it cannot be taken as it is, though it may be later
	ticket  bool   // it is what should name a shard, and does not
	sum     string // SHA-256 of its content in hex, where the producer gives it
	stated  *int64 // how many bytes the producer says that it has

	absent     bool // it is not there, or cannot be read
	unanswered bool // its store did not say whether it is there
	unasked    bool // it waits for consumers, and nobody has looked whether it is whole
}

// address is where the shard is read.
func (o offer) address() string {
	if o.at != "" {
		return o.at
	}
	return o.name
}

// identity is the name that a shard has in ledgers and notes: of an address that asks for something behind "?",
// or has a user, which may be secret, the rest and a hash of the whole.
func identity(name string) string {
	s := store.Scheme(name)
	if s != "http" && s != "https" {
		return name
	}
	_, rest, _ := strings.Cut(name, "://")
	host, _, _ := strings.Cut(rest, "/")
	if !strings.Contains(rest, "?") && !strings.Contains(host, "@") {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s#%x", store.Redact(name), sum[:8])
}

// origin is where a producer puts shards, or says where they lie.
type origin interface {
	// offers lists what is there now; of those that were taken only what costs nothing to tell. Once room shards
	// are whole it need not ask for more of those that it has names of.
	offers(taken func(name string) bool, room int64) ([]offer, error)
	// done may forget the shards that are in the ledger, and refused hears of one that cannot be used as it is.
	done(inLedger func(name string) bool) error
	refused(name string) error
}

// OriginKind is a kind of origin.
type OriginKind struct {
	Name string
	Doc  string // what the pattern names
	open func(c FollowConfig) (origin, error)
}

var originKinds []OriginKind

func registerOrigin(k OriginKind) bool {
	originKinds = append(originKinds, k)
	return true
}

// OriginKinds are the kinds of places that a growing data set is followed from, by name.
func OriginKinds() []OriginKind {
	out := slices.Clone(originKinds)
	slices.SortFunc(out, func(a, b OriginKind) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// openOrigin opens the origin of a configuration.
func openOrigin(c FollowConfig) (origin, error) {
	kind := c.From
	if kind == "" {
		kind = "files"
	}
	var names []string
	for _, k := range OriginKinds() {
		if k.Name == kind {
			return k.open(c)
		}
		names = append(names, k.Name)
	}
	return nil, fmt.Errorf("shards do not come from %q; they come from %s", kind, strings.Join(names, ", "))
}

var _ = registerOrigin(OriginKind{"files", "files of a folder, or objects of s3, gs and az, that a pattern names",
	func(c FollowConfig) (origin, error) {
		switch s := store.Scheme(c.Pattern); s {
		case "":
			if _, err := filepath.Match(c.Pattern, ""); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Pattern, err)
			}
			return &folder{c.Pattern, c.Marker}, nil
		case "s3", "gs", "az":
			return &bucket{c.Pattern, c.Marker}, nil
		default:
			return nil, fmt.Errorf("%s: %s has no lists of files; write one of them and follow it from list",
				store.Redact(c.Pattern), s)
		}
	}})

// folder is files on disk.
type folder struct{ pattern, marker string }

func (f *folder) offers(func(string) bool, int64) ([]offer, error) {
	files, err := filepath.Glob(f.pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.pattern, err)
	}
	slices.Sort(files)
	there := map[string]bool{}
	for _, path := range files {
		there[path] = true
	}
	var out []offer
	for _, path := range files {
		if f.marker != "" && strings.HasSuffix(path, f.marker) {
			continue
		}
		o, err := offerOf(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && o.name == "" {
			continue // it went away, or is nothing to take
		}
		if err != nil { // a loop of links, for one
			o = offer{name: path, waits: "it cannot be read: " + err.Error(), absent: true}
		}
		if f.marker != "" && !there[path+f.marker] {
			if _, err := os.Stat(path + f.marker); err != nil {
				o.waits = unmarked
			}
		}
		out = append(out, o)
	}
	return out, nil
}

func (f *folder) done(func(string) bool) error { return nil }
func (f *folder) refused(string) error         { return nil }

// unmarked is why a shard waits whose marker is not there; that is nothing to tell anybody.
const unmarked = "unmarked"

// offerOf is a file on disk, or an object, as it is now; its name is "" where it is no file.
func offerOf(name string) (offer, error) {
	if store.Scheme(name) == "" {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return offer{}, err
		}
		return offer{name: name, size: info.Size(), changed: info.ModTime().UnixNano()}, nil
	}
	f, err := store.Open(name)
	if err != nil {
		return offer{}, err
	}
	defer f.Close()
	return offer{name: name, size: f.Size(), version: versionOf(f)}, nil
}

// versionOf is the version of an object, or "" where its store tells none that stays.
func versionOf(f store.File) string { return strings.Trim(store.Told(f.Version()), `"`) }

// bucket is objects of a store.
type bucket struct{ pattern, marker string }

func (b *bucket) offers(func(string) bool, int64) (out []offer, err error) {
	list, err := store.List(b.pattern)
	if err != nil {
		return nil, err
	}
	marks := map[string]bool{}
	if b.marker != "" {
		names, err := store.Glob(b.pattern + b.marker)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			marks[n] = true
		}
	}
	for _, l := range list {
		if b.marker != "" && strings.HasSuffix(l.Name, b.marker) {
			continue
		}
		o := offer{name: l.Name, size: l.Size, version: l.Version}
		if b.marker != "" && !marks[l.Name+b.marker] {
			o.waits = unmarked
		}
		out = append(out, o)
	}
	return out, nil
}

func (b *bucket) done(func(string) bool) error { return nil }
func (b *bucket) refused(string) error         { return nil }
