package format

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// WARC (ISO 28500): archives of web pages, as Common Crawl's .warc.gz, and their texts, .wet.gz. Documents
// are the texts of records of the type "conversion", and those of pages among the "response" records, of
// which the visible text is taken; records of other types are passed over.
var _ = dataset.Register(dataset.Format{
	Name: "warc",
	Doc:  "texts and pages in archives of the web (WARC, WET)",
	Kind: dataset.KindText,
	Match: func(path string, head []byte) bool {
		return HasSuffix(plainName(path), ".warc", ".wet") || bytes.HasPrefix(plainHead(head), []byte(warcMagic))
	},
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		f, err := openMembers(path)
		if err != nil {
			return nil, err
		}
		r, err := recordsOf(f, "warc 2", func(_ *bufio.Reader, yield func(span) error) error {
			return scanWARC(f, f.Size(), yield)
		}, o)
		if err != nil {
			return nil, err
		}
		return &warc{r, store.Redact(path)}, nil
	},
	Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
		var b bytes.Buffer
		for i, d := range docs {
			fmt.Fprintf(&b, "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: urn:document:%d\r\nContent-Type: "+
				"text/plain\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n", i, len(d.Text), d.Text)
		}
		path := filepath.Join(dir, "docs.warc.wet")
		return path, dataset.Options{}, os.WriteFile(path, b.Bytes(), 0o644)
	},
})

// Bounds of a record's header, and what records begin with.
const (
	warcMagic     = "WARC/"
	warcHeaderMax = 64 << 10
)

// warcHeader reads the header of the record that a reader stands at, and its length in bytes; io.EOF where
// there are no more records.
func warcHeader(r *bufio.Reader) (h textproto.MIMEHeader, n int64, err error) {
	h = textproto.MIMEHeader{}
	for first := true; ; {
		line, err := r.ReadSlice('\n')
		n += int64(len(line))
		if err == io.EOF && len(bytes.TrimSpace(line)) == 0 && first {
			return nil, n, io.EOF
		}
		if err != nil {
			return nil, n, fmt.Errorf("a header ends early: %w", err)
		}
		if n > warcHeaderMax {
			return nil, n, fmt.Errorf("a header is over %d bytes", warcHeaderMax)
		}
		text := strings.TrimRight(string(line), "\r\n")
		switch {
		case text == "" && first: // between records
		case first:
			if !strings.HasPrefix(text, warcMagic) {
				return nil, n, fmt.Errorf("%q stands where a record should begin", Clip(text))
			}
			first = false
		case text == "":
			return h, n, nil
		default:
			name, value, ok := strings.Cut(text, ":")
			if !ok {
				return nil, n, fmt.Errorf("%q is no line of a header", Clip(text))
			}
			h.Add(name, strings.TrimSpace(value))
		}
	}
}

// scanWARC finds the records of an archive that hold documents, each with its header. A record that is torn, whose
// header is none or whose content does not end where another record begins, is one too, up to the next that begins:
// it is bad when it is read. A file that does not begin with a record is an error.
func scanWARC(f io.ReaderAt, total int64, yield func(span) error) error {
	r := bufio.NewReaderSize(nil, warcHeaderMax)
	for at := int64(0); ; {
		r.Reset(io.NewSectionReader(f, at, total-at))
		h, n, err := warcHeader(r)
		if err == io.EOF {
			return nil
		}
		if err != nil && at == 0 {
			return fmt.Errorf("the record at byte 0: %w", err)
		}
		size, next := int64(0), int64(-1)
		if err == nil {
			if size, err = warcLength(h); err == nil && size <= total-at-n {
				next = warcNext(f, at+n+size, total)
			}
		}
		holds := next < 0 || h.Get("Warc-Type") == "conversion"
		if next < 0 {
			if next, err = warcBegin(f, at+1, total); err != nil {
				return err
			}
			n, size = next-at, 0
		} else if h.Get("Warc-Type") == "response" {
			b, err := r.Peek(int(min(size, warcHeaderMax-1)))
			if err != nil {
				return err
			}
			holds = isPage(h, b)
		}
		if holds {
			if err := yield(span{at, at + n + size}); err != nil {
				return err
			}
		}
		at = next
	}
}

// warcLength is the size of a record's content.
func warcLength(h textproto.MIMEHeader) (int64, error) {
	size, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil || size < 0 {
		return 0, fmt.Errorf("%q is no Content-Length", Clip(h.Get("Content-Length")))
	}
	return size, nil
}

// warcNext is where the next record begins, or the file ends, if only ends of lines stand in front of it, else -1.
func warcNext(f io.ReaderAt, at, total int64) int64 {
	var b [64]byte
	n, err := f.ReadAt(b[:min(int64(len(b)), total-at)], at)
	if err != nil && err != io.EOF {
		return -1
	}
	rest := bytes.TrimLeft(b[:n], "\r\n")
	if len(rest) > 0 && !bytes.HasPrefix(rest, []byte(warcMagic)) {
		return -1
	}
	return at + int64(n-len(rest))
}

// warcBegin is where a line begins a record, at or behind a place; total where none does.
func warcBegin(f io.ReaderAt, at, total int64) (int64, error) {
	begin := []byte("\n" + warcMagic)
	for b := make([]byte, 1<<20); at < total; {
		n, err := f.ReadAt(b[:min(int64(len(b)), total-at)], at)
		if err != nil && err != io.EOF {
			return 0, err
		}
		if k := bytes.Index(b[:n], begin); k >= 0 {
			return at + int64(k) + 1, nil
		}
		if at += int64(n); at < total {
			at -= int64(len(begin))
		}
	}
	return total, nil
}

// isPage says whether a response may be a page of text, by the beginning of its content: by the type that was
// identified, else by the one that the server told, and whatever they say by what its first bytes are (WHATWG's MIME
// sniffing): servers call images pages. Style sheets and scripts are none.
func isPage(h textproto.MIMEHeader, content []byte) bool {
	in := textproto.NewReader(bufio.NewReaderSize(bytes.NewReader(content), warcHeaderMax))
	_, err := in.ReadLine()
	head, also := in.ReadMIMEHeader()
	if err != nil || also != nil {
		return true // it is bad when it is read
	}
	kind := h.Get("Warc-Identified-Payload-Type")
	if kind == "" {
		kind = head.Get("Content-Type")
	}
	kind, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(kind)), ";")
	switch {
	case strings.HasPrefix(kind, "text/css"), strings.Contains(kind, "javascript"):
		return false
	case kind == "", kind == "application/octet-stream", strings.HasPrefix(kind, "text/"), strings.Contains(kind, "html"):
	default:
		return false
	}
	if e := head.Get("Content-Encoding"); e != "" && e != "identity" {
		return true // likewise
	}
	body, err := in.R.Peek(sniffed)
	return err != nil && err != io.EOF || strings.HasPrefix(http.DetectContentType(body), "text/")
}

// sniffed is how many bytes tell the type of a content.
const sniffed = 512

// warc is an open archive.
type warc struct {
	*fileRecords
	name string
}

func (w *warc) Name() string       { return w.name }
func (w *warc) Kind() dataset.Kind { return dataset.KindText }

// Fingerprint covers the way in which texts are taken from pages.
func (w *warc) Fingerprint() string { return HashOf(w.print, "page 2") }

// Read reads the text of a record.
func (w *warc) Read(i int64) (dataset.Document, error) {
	_, text, place, err := w.record(i)
	return dataset.Document{Text: text, Place: place}, err
}

// Columns implements dataset.Columned: the text, and what the header says of the page.
func (w *warc) Columns(i int64) ([]byte, dataset.Place, error) {
	h, text, place, err := w.record(i)
	if err != nil {
		return nil, place, err
	}
	b, err := json.Marshal(struct {
		Text string `json:"text"`
		URL  string `json:"url,omitempty"`
		Date string `json:"date,omitempty"`
		ID   string `json:"id,omitempty"`
	}{text, strings.Trim(h.Get("Warc-Target-Uri"), "<>"), h.Get("Warc-Date"),
		strings.Trim(h.Get("Warc-Record-Id"), "<>")})
	return b, place, err
}

// record reads a record's header and text.
func (w *warc) record(i int64) (h textproto.MIMEHeader, text string, place dataset.Place, err error) {
	place = dataset.Place{File: w.file.Name()}
	bad := func(format string, args ...any) error {
		return &dataset.BadSample{Place: place, Reason: fmt.Sprintf(format, args...)}
	}
	if w.index.n == 0 {
		return nil, "", place, bad("the archive has no pages and no texts")
	}
	s, err := w.index.at(i)
	if err != nil {
		return nil, "", place, err
	}
	place.Offset = s.start
	if n := s.end - s.start; n > w.limit {
		return nil, "", place, bad("a record of %d bytes is over the limit of %d", n, w.limit)
	}
	b := make([]byte, s.end-s.start)
	if _, err := w.file.ReadAt(b, s.start); err != nil {
		return nil, "", place, fmt.Errorf("%s: %w", place, err)
	}
	h, n, err := warcHeader(bufio.NewReaderSize(bytes.NewReader(b), warcHeaderMax))
	if err != nil {
		return nil, "", place, bad("%v", err)
	}
	body := b[n:]
	if size, err := warcLength(h); err != nil || size != int64(len(body)) {
		return nil, "", place, bad("the record is torn: its header tells %q bytes of content, and %d come before the "+
			"next record", Clip(h.Get("Content-Length")), len(body))
	}
	if h.Get("Warc-Type") == "conversion" {
		return h, string(body), place, checkUTF8(body, place)
	}
	if text, err = pageText(body); err != nil {
		return nil, "", place, bad("%v", err)
	}
	return h, text, place, nil
}

// pageText is the visible text of an HTTP response.
func pageText(b []byte) (string, error) {
	in := textproto.NewReader(bufio.NewReaderSize(bytes.NewReader(b), warcHeaderMax))
	status, err := in.ReadLine()
	if err != nil || !strings.HasPrefix(status, "HTTP/") {
		return "", errors.New("it is no HTTP response")
	}
	h, err := in.ReadMIMEHeader()
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("its HTTP header: %w", err)
	}
	if code := strings.Fields(status); len(code) < 2 || !strings.HasPrefix(code[1], "2") {
		return "", fmt.Errorf("the server answered %q", Clip(status))
	}
	for _, name := range []string{"Content-Encoding", "Transfer-Encoding"} {
		if v := h.Get(name); v != "" && v != "identity" {
			return "", fmt.Errorf("its %s is %s: archives that keep bodies as they were sent are not read",
				name, Clip(v))
		}
	}
	body, err := io.ReadAll(in.R)
	if err != nil {
		return "", err
	}
	kind := h.Get("Content-Type")
	e, name, _ := charset.DetermineEncoding(body[:min(len(body), 1024)], kind) // it may be a guess
	if name != "utf-8" || !utf8.Valid(body) {
		if name == "windows-1252" && utf8.Valid(body) { // what is taken where nothing is said
			name = "utf-8"
		} else if body, err = e.NewDecoder().Bytes(body); err != nil {
			return "", fmt.Errorf("it is not %s: %w", name, err)
		}
	}
	if strings.HasPrefix(kind, "text/plain") {
		return strings.ToValidUTF8(string(body), "\uFFFD"), nil
	}
	return htmlText(body), nil
}
