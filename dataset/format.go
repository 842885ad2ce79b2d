package dataset

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/dataset/store"
)

// Options of opening data. Each format uses those that concern it.
type Options struct {
	Format    string // name of the format; "" lets the path and its first bytes tell
	TextKey   string // JSON key or column that holds the text; "" means "text"
	Documents string // how plain text is cut: "file" (the default), "blank" (at blank lines) or "line"
	Pattern   string // names of files in a directory, as in "*.go"; "" means "*.txt"
	// of one document; a longer one is a bad sample and is not read into memory; 0 means 64 MiB
	BytesMax int64
	IndexDir string // where indexes of line offsets are kept for the next run; "" keeps them in memory only
	Split    string // part of a data set that has named parts, as in Energon's split.yaml; "" means "train"
	Tags     Tags   // names in chat data that are not the usual ones
	Full     bool   // fingerprints cover all bytes of files, which are read to the end when they are opened
	// conversations in records come with the images and videos that they name, as samples of parts
	Media bool
	// recordings of robots are read frame by frame, each with the actions of so many steps from it on; 0
	// reads whole episodes
	Horizon int
	Robot   RobotKeys
	Past    int // steps before a frame that are observed with it; actions begin with the first of them
	// frames behind a frame that are read with it, and steps from one of them to the next
	Later, Every int
}

// RobotKeys name the columns of a robot's recordings; "" for the usual ones. FPS is how many frames a second
// recordings of messages are brought to, 0 for 10; of their topics of pictures Cameras alone are read, or
// all where there are none.
type RobotKeys struct {
	Action, State string
	FPS           float64
	Cameras       []string
}

// Columns are the names of columns, for fingerprints of recordings that are no messages.
func (k RobotKeys) Columns() string { return "{" + k.Action + " " + k.State + "}" }

// Tags names the parts of chat data; "" means the format's usual name.
type Tags struct {
	Messages, Role, Content                    string // list of turns and what a turn holds
	User, Assistant, System, Tool              string // values of the role
	Instruction, Input, Output, History, Tools string
	SystemKey                                  string // key of the system's text beside the turns
	Function                                   string // value of the role: a call that the assistant makes
	Images, Videos                             string // keys of paths
	// parts without a name are not read, and roles without a name are none
	Only bool
	// of data that are read as LLaMA-Factory reads them: the shape (alpaca, sharegpt, openai), "" otherwise
	Factory                 string
	Chosen, Rejected, Label string // keys of two answers, and of what says that an answer is a good one
}

// String is for fingerprints: names that older ones did not have show only where they are set.
func (t Tags) String() string {
	old := "{" + strings.Join([]string{t.Messages, t.Role, t.Content, t.User, t.Assistant, t.System, t.Tool,
		t.Instruction, t.Input, t.Output, t.History, t.Tools}, " ") + "}"
	if more := fmt.Sprint(t.SystemKey, "|", t.Function, "|", t.Images, "|", t.Videos, "|",
		t.Only); more != "||||false" {
		old += more
	}
	if t.Factory != "" {
		old += fmt.Sprint("|", t.Factory, "|", t.Chosen, "|", t.Rejected, "|", t.Label)
	}
	return old
}

// Name is the key or value that a part of the data has: as given, or the usual one unless only what has a name is read.
func (t Tags) Name(given, usual string) string {
	if given == "" && !t.Only {
		return usual
	}
	return given
}

// bytesMaxDefault bounds a document where Options do not.
const bytesMaxDefault = 64 << 20

// Limit returns the size from which on a document is a bad sample.
func (o Options) Limit() int64 {
	if o.BytesMax > 0 {
		return o.BytesMax
	}
	return bytesMaxDefault
}

// Format is a kind of file that holds documents.
type Format struct {
	Name string // as Options.Format gives it
	Doc  string // one sentence for people
	Kind Kind
	// Match says whether a path looks like it. head is the start of the file, nil for a directory.
	Match func(path string, head []byte) bool
	// Reads says whether a file can be of this format though it looks like another one, as JSON records of
	// any keys may be conversations; nil says that Match knows. It matters where Options name the format.
	Reads func(path string, head []byte) bool
	// Any says that the format reads whatever lies in a file. It is looked for last, and a file that looks
	// like another format is not read as this one.
	Any bool
	// Open returns the documents at a path.
	Open func(path string, o Options) (Source, error)
	// Blend returns the sources that a path blends and their shares, which add up to 1. nil for formats of one source.
	Blend func(path string, o Options) ([]Weighted, error)
	// Write puts documents into a directory. Open, given the path and the options it returns, finds the same
	// ones again: the format's claim, which a test holds it to. nil for a format without a place for all that
	// documents of its kind may have.
	Write func(dir string, docs []Document) (path string, o Options, err error)
}

var formats struct {
	sync.Mutex
	list []Format
}

// Register adds a format; formats call it when their package is loaded. It returns true so that it can stand
// in a variable's declaration. Two formats of one name are a bug of the program.
func Register(f Format) bool {
	formats.Lock()
	defer formats.Unlock()
	if slices.ContainsFunc(formats.list, func(g Format) bool { return g.Name == f.Name }) {
		panic(fmt.Sprintf("dataset: two formats are named %q", f.Name))
	}
	formats.list = append(formats.list, f)
	switch f.Kind {
	case KindText, KindTokens, KindPairs, KindJudged, KindPrompts, KindSimilar:
		source.Offer(source.Formats, f.Name)
	case KindChat:
		source.Offer(source.Chats, f.Name)
	}
	return true
}

// refusals are kinds of data that nothing here reads, with what to do about them.
var refusals struct {
	sync.Mutex
	list []func(path string, head []byte) string
}

// Refuse adds data that is known and not read: why returns what it is and what to do about it, "" for other data.
// head is the start of a file, nil for a directory. Files of formats call it in a variable's declaration.
func Refuse(why func(path string, head []byte) string) bool {
	refusals.Lock()
	defer refusals.Unlock()
	refusals.list = append(refusals.list, why)
	return true
}

// refused says why data is not read, "" for what may be.
func refused(path string, head []byte) string {
	refusals.Lock()
	defer refusals.Unlock()
	for _, why := range refusals.list {
		if s := why(path, head); s != "" {
			return s
		}
	}
	return ""
}

// Formats returns what is registered, by name.
func Formats() []Format {
	formats.Lock()
	defer formats.Unlock()
	out := slices.Clone(formats.list)
	slices.SortFunc(out, func(a, b Format) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// headBytes is how much of a file the formats may look at to tell whether it is theirs: more than one block of zstd.
const headBytes = 192 << 10

// Open returns the documents at a path, in the format that Options name or that the path and its start look
// like. A pattern ("shards/*.jsonl", "s-{000..010}.tar") stands for its files, as ExpandPaths gives them, as
// one source, and so does a folder of files of one format.
func Open(path string, o Options) (Source, error) {
	paths, err := filesOf(path, o)
	if err != nil {
		return nil, err
	}
	return openAll(paths, o)
}

// openAll opens the paths as one source, in their order. If one fails, those that are open are closed again.
func openAll(paths []string, o Options) (Source, error) {
	var sources []Source
	for _, p := range paths {
		s, err := openOne(p, o)
		if err != nil {
			return nil, errors.Join(err, closeAll(sources))
		}
		sources = append(sources, s)
	}
	return Concat(sources...)
}

// closeAll closes all sources and joins their errors.
func closeAll(sources []Source) (err error) {
	for _, s := range sources {
		err = errors.Join(err, s.Close())
	}
	return err
}

// OpenBlend opens a path that may be a blend of sources, and returns them with their shares.
func OpenBlend(path string, o Options) ([]Weighted, error) {
	paths, err := filesOf(path, o)
	if err != nil {
		return nil, err
	}
	if len(paths) == 1 { // a blend is one file or folder
		f, err := formatOf(paths[0], o)
		if err != nil {
			return nil, err // asking a store that does not answer takes minutes: once
		}
		if f.Blend != nil {
			list, err := f.Blend(paths[0], o)
			if err != nil {
				return nil, fmt.Errorf("open %s as %s: %w", store.Redact(paths[0]), f.Name, err)
			}
			return list, nil
		}
	}
	s, err := openAll(paths, o)
	if err != nil {
		return nil, err
	}
	return []Weighted{{s, 1}}, nil
}

// openOne opens one path in the format that was asked for or found. Errors name it without its secrets.
func openOne(path string, o Options) (Source, error) {
	f, err := formatOf(path, o)
	if err != nil {
		return nil, err
	}
	s, err := f.Open(path, o)
	if err != nil {
		return nil, fmt.Errorf("open %s as %s: %w", store.Redact(path), f.Name, err)
	}
	return s, nil
}

// ClashError says that a file holds another format than the one that Options name.
type ClashError struct {
	Path string
	Want string // the format that is named
	Have Format // what the file looks like
}

// Error names the file and both formats.
func (e *ClashError) Error() string {
	return fmt.Sprintf("open %s as %s: the file looks like %s (%s)", store.Redact(e.Path), e.Want, e.Have.Name,
		e.Have.Doc)
}

// FormatOf returns the format of the data at a path, of a pattern that of its first file: the one that
// Options name, or the one that the files look like.
func FormatOf(path string, o Options) (Format, error) {
	paths, err := filesOf(path, o)
	if err != nil {
		return Format{}, err
	}
	return formatOf(paths[0], o)
}

// formatOf finds the format that Options name or that a file looks like. A file that looks like another one
// than is named gives a *ClashError.
func formatOf(path string, o Options) (found Format, err error) {
	head, err := headOf(path)
	if err != nil {
		return found, err
	}
	var names []string
	all := Formats()
	for _, f := range all {
		names = append(names, f.Name)
	}
	if o.Format != "" {
		i := slices.Index(names, o.Format)
		if i < 0 {
			return found, fmt.Errorf("open %s: no data format is named %q; there are %s", store.Redact(path),
				o.Format, strings.Join(names, ", "))
		}
		return all[i], clash(all, all[i], path, head)
	}
	if why := refused(store.Redact(path), head); why != "" {
		return found, fmt.Errorf("open %s: %s", store.Redact(path), why)
	}
	for _, last := range []bool{false, true} {
		for _, f := range all {
			if f.Any == last && f.Match(store.Redact(path), head) {
				return f, nil
			}
		}
	}
	if _, err := os.Stat(path); err != nil && store.Scheme(path) == "" {
		return found, fmt.Errorf("open %s: %w", path, errors.Unwrap(err))
	}
	return found, fmt.Errorf("open %s: it looks like none of the data formats %s; name one",
		store.Redact(path), strings.Join(names, ", "))
}

// clash says that a file looks like another format and not at all like the one that is named.
func clash(all []Format, named Format, path string, head []byte) error {
	shown := store.Redact(path)
	if !named.Any && named.Match(shown, head) || named.Reads != nil && named.Reads(shown, head) {
		return nil
	}
	for _, f := range all {
		if !f.Any && f.Name != named.Name && f.Match(shown, head) {
			return &ClashError{Path: path, Want: named.Name, Have: f}
		}
	}
	return nil
}

// Hollow says why a path gives no document: it is a folder without entries, a file, compressed or not, that is blank or has
// no rows, or cannot be opened; "" where there may be some. What it would be read as follows from its name alone then.
func Hollow(path string) string {
	s, err := Open(path, Options{})
	if err != nil {
		list, fault := os.ReadDir(path)
		if i, lost := os.Stat(path); lost == nil && (i.Size() == 0 || fault == nil && len(list) == 0) {
			return store.Redact(path) + " is empty"
		}
		return err.Error()
	}
	defer s.Close()
	var bad *BadSample
	if _, err := s.Read(0); s.Len() == 1 && errors.As(err, &bad) &&
		(strings.HasSuffix(bad.Reason, "the file is empty") || strings.HasSuffix(bad.Reason, "the file has no rows")) {
		return store.Redact(path) + " is empty"
	}
	return ""
}

// headOf returns the first bytes of a file. The result is nil for a folder and for a prefix of several
// files. A file in a store that cannot be read is an error at once.
func headOf(path string) ([]byte, error) {
	f, err := store.Open(path)
	if err != nil {
		if store.Scheme(path) != "" {
			return nil, err
		}
		return nil, nil
	}
	defer f.Close()
	head := make([]byte, min(headBytes, f.Size()))
	n, err := f.ReadAt(head, 0)
	if n == len(head) || store.Scheme(path) == "" {
		return head[:n], nil
	}
	return nil, err
}
