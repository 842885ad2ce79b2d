package format

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// HashOf hashes values, each with its length.
func HashOf(parts ...any) string {
	h := sha256.New()
	for _, p := range parts {
		s := fmt.Sprint(p)
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// sampleBytes is how much of the start, the middle and the end of a file its fingerprint looks at.
const sampleBytes = 64 << 10

// FingerprintFile identifies a file by its size and parts of its content, wherever it lies, or by all of it.
// What is changed elsewhere without a change of the size does not show in parts.
func FingerprintFile(f io.ReaderAt, size int64, full bool) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%d", size)
	if full {
		h.Write([]byte(" full"))
		if _, err := io.Copy(h, bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 1<<20)); err != nil {
			return "", err
		}
		return hex.EncodeToString(h.Sum(nil))[:32], nil
	}
	for _, at := range []int64{0, size / 2, max(0, size-sampleBytes)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, at, sampleBytes)); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:32], nil
}

// Records are the JSON objects of a file.
type Records interface {
	Len() int64
	// Record returns object i and where it lies. A record that cannot be used gives a *dataset.BadSample.
	Record(i int64) ([]byte, dataset.Place, error)
	Fingerprint() string
	Close() error
}

// fileRecords are stretches of a file: lines, paragraphs or the elements of a JSON array.
type fileRecords struct {
	file  store.File
	index *index
	print string
	limit int64
}

// openRecords opens a file whose records find tells.
func openRecords(path, kind string, find scan, o dataset.Options) (*fileRecords, error) {
	f, err := openContent(path)
	if err != nil {
		return nil, err
	}
	return recordsOf(f, kind, find, o)
}

// recordsOf finds the records of a file, which is closed with them.
func recordsOf(f store.File, kind string, find scan, o dataset.Options) (*fileRecords, error) {
	r := &fileRecords{file: f, limit: o.Limit()}
	var err error
	if r.print, err = FingerprintFile(f, f.Size(), o.Full); err == nil {
		r.print = HashOf(r.print, kind, r.limit)
		r.index, err = buildIndex(f, kind, find, o.IndexDir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// OpenJSON opens JSON lines, or one JSON array of objects.
func OpenJSON(path string, o dataset.Options) (Records, error) {
	f, err := openContent(path)
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(4096, f.Size()))
	if n, err := f.ReadAt(head, 0); n < len(head) {
		return nil, errors.Join(err, f.Close())
	}
	if bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\uFEFF")), " \t\r\n"), []byte("[")) {
		return recordsOf(f, "array", scanArray, o)
	}
	return recordsOf(f, "lines", scanLines, o)
}

// ignoreEOF turns the end of a file into no error.
func ignoreEOF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// Len counts a file without records as one, which is bad: an empty file is to show.
func (r *fileRecords) Len() int64 { return max(1, r.index.n) }

func (r *fileRecords) Fingerprint() string { return r.print }
func (r *fileRecords) Close() error        { return errors.Join(r.file.Close(), r.index.close()) }

// Record reads record i and checks its size and encoding. A byte order mark at the begin of the
// file and carriage returns at the end of the line are dropped.
func (r *fileRecords) Record(i int64) ([]byte, dataset.Place, error) {
	place := dataset.Place{File: r.file.Name()}
	if r.index.n == 0 {
		return nil, place, &dataset.BadSample{Place: place, Reason: "the file is empty"}
	}
	s, err := r.index.at(i)
	if err != nil {
		return nil, place, err
	}
	place.Offset = s.start
	if n := s.end - s.start; n > r.limit {
		return nil, place, &dataset.BadSample{Place: place,
			Reason: fmt.Sprintf("a record of %d bytes is over the limit of %d", n, r.limit)}
	}
	b := make([]byte, s.end-s.start)
	if _, err := r.file.ReadAt(b, s.start); err != nil {
		return nil, place, fmt.Errorf("%s: %w", place, err)
	}
	if s.start == 0 {
		b = bytes.TrimPrefix(b, []byte("\uFEFF"))
	}
	b = bytes.TrimRight(b, "\r")
	return b, place, checkUTF8(b, place)
}

// Sizes returns how many bytes records have: implements dataset.Sized for those who hold them.
func (r *fileRecords) Sizes(from int64, out []int64) error {
	if r.index.n == 0 {
		clear(out)
		return nil
	}
	for k := range out {
		s, err := r.index.at(from + int64(k))
		if err != nil {
			return err
		}
		if out[k] = s.end - s.start; out[k] > r.limit { // it is bad
			out[k] = 0
		}
	}
	return nil
}

// checkUTF8 makes a bad sample of text that is no UTF-8, and says where.
func checkUTF8(b []byte, place dataset.Place) error {
	if utf8.Valid(b) {
		return nil
	}
	at := 0
	for {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n <= 1 {
			return &dataset.BadSample{Place: place,
				Reason: fmt.Sprintf("it is not UTF-8: byte %#02x at its byte %d", b[at], at)}
		}
		at += n
	}
}

// checkSurrogates makes a bad sample of JSON whose texts have half of a surrogate pair alone: it is no
// character, Go would read it as U+FFFD, and Python cannot write it as UTF-8.
func checkSurrogates(b []byte, place dataset.Place) error {
	half := func(at int) uint64 { // of an escape at a place, 0 where there is none
		if at+6 > len(b) || b[at] != '\\' || b[at+1] != 'u' {
			return 0
		}
		v, err := strconv.ParseUint(string(b[at+2:at+6]), 16, 32)
		if err != nil || v&0xf800 != 0xd800 {
			return 0
		}
		return v
	}
	for at := 0; ; {
		next := bytes.IndexByte(b[at:], '\\')
		if next < 0 || at+next+1 >= len(b) {
			return nil
		}
		at += next
		switch v := half(at); {
		case v == 0:
			at += 2
		case v < 0xdc00 && half(at+6) >= 0xdc00:
			at += 12
		default:
			return &dataset.BadSample{Place: place, Reason: fmt.Sprintf("a text of it has %s alone at its byte "+
				"%d, half of a surrogate pair, which is no character", b[at:at+6], at)}
		}
	}
}

// object reads a JSON object's members.
func object(b []byte, place dataset.Place) (map[string]json.RawMessage, error) {
	if err := checkSurrogates(b, place); err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, notJSON(err, place)
	}
	if m == nil {
		return nil, &dataset.BadSample{Place: place, Reason: "it is null, not a JSON object"}
	}
	return m, nil
}

// notJSON is a bad sample whose reason names the byte at which the JSON is wrong.
func notJSON(err error, place dataset.Place) error {
	reason := "it is not a JSON object: " + strings.TrimPrefix(err.Error(), "json: ")
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		reason = fmt.Sprintf("it is not JSON: %v at its byte %d", err, syntax.Offset)
	}
	return &dataset.BadSample{Place: place, Reason: reason}
}

// member returns the string that an object holds under a key.
func member(m map[string]json.RawMessage, key string, place dataset.Place) (string, error) {
	raw, ok := m[key]
	if !ok {
		return "", &dataset.BadSample{Place: place, Reason: fmt.Sprintf("it has no key %q%s", key, itsKeys(m))}
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", &dataset.BadSample{Place: place, Reason: fmt.Sprintf("its %q is not text", key)}
	}
	return *s, nil
}

// itsKeys names an object's keys for a message, the first of them by name.
func itsKeys(m map[string]json.RawMessage) string {
	const most = 12
	names := slices.Sorted(maps.Keys(m))
	switch n := len(names); {
	case n == 0:
		return ": it is empty"
	case n > most:
		return fmt.Sprintf("; of its %d keys the first are %s", n, Clip(strings.Join(names[:most], ", ")))
	}
	return "; its keys are " + Clip(strings.Join(names, ", "))
}

// keysOf returns the keys of the first JSON object in the start of a file.
func keysOf(head []byte) map[string]bool {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(plainHead(head), []byte("\uFEFF"))))
	keys := map[string]bool{}
	t, err := d.Token()
	if err == nil && t == json.Delim('[') {
		t, err = d.Token()
	}
	if err != nil || t != json.Delim('{') {
		return keys
	}
	for {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return keys
		}
		keys[key] = true
		if skipValue(d) != nil {
			return keys
		}
	}
}

// skipValue reads one value.
func skipValue(d *json.Decoder) error {
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil {
			return err
		}
		if depth += opens(t); depth == 0 {
			return nil
		}
	}
}

// opens is by how much a token changes the depth of a JSON value.
func opens(t json.Token) int {
	switch t {
	case json.Delim('{'), json.Delim('['):
		return 1
	case json.Delim('}'), json.Delim(']'):
		return -1
	}
	return 0
}

// HasSuffix says whether a path ends in one of the extensions, in any case.
func HasSuffix(path string, exts ...string) bool {
	for _, e := range exts {
		if strings.HasSuffix(strings.ToLower(path), e) {
			return true
		}
	}
	return false
}

// isJSON says whether a path looks like JSON lines or a JSON array.
func isJSON(path string) bool { return HasSuffix(plainName(path), ".jsonl", ".json", ".ndjson") }

// holdsJSON says whether a file is JSON lines or a JSON array by its name, or, where the name says nothing,
// because its first line is an object.
func holdsJSON(path string, head []byte) bool {
	if isJSON(path) || filepath.Ext(plainName(path)) != "" {
		return isJSON(path)
	}
	line, _, whole := bytes.Cut(bytes.TrimPrefix(plainHead(head), []byte("\uFEFF")), []byte("\n"))
	return whole && bytes.HasPrefix(line, []byte("{")) && json.Valid(line) && len(keysOf(line)) > 0
}

// WriteLines writes one JSON value a line.
func WriteLines[T any](path string, values []T) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	e := json.NewEncoder(f)
	e.SetEscapeHTML(false)
	for _, v := range values {
		err = errors.Join(err, e.Encode(v))
	}
	return errors.Join(err, f.Close())
}

// PrintFile returns what identifies a file's content, by its size and all of its bytes, and its size.
func PrintFile(path string) (print string, size int64, err error) {
	f, err := store.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	print, err = FingerprintFile(f, f.Size(), true)
	return print, f.Size(), err
}
