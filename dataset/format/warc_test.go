package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// Records, their headers and texts are those that warcio reads, by bench/golden/warc.py; the texts of pages
// are given here, since every library takes other ones.
func TestWARC(t *testing.T) {
	var want map[string][]struct{ URL, Date, ID, Type, Status, Text string }
	b, err := os.ReadFile("testdata/warc/small.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &want))
	pages := []string{"Stone & wood\nThe river runs past the house.\nIt is not far.\nGo there.\na b\none\ntwo",
		"Café naïve über", "Привет, мир", "Plain text,\nas it is.\n", "", "日本語の文", "nothing is said: é 你好"}
	for name, list := range want {
		s := formattest.Open(t, filepath.Join("testdata", "warc", name), dataset.Options{})
		require.Equal(t, int64(len(list)), s.Len(), name)
		for i, w := range list {
			text, bad := w.Text, w.Status != "" && w.Status != "200"
			if w.Type == "response" {
				text = pages[i]
			}
			d, err := s.Read(int64(i))
			raw, _, also := s.(dataset.Columned).Columns(int64(i))
			if bad {
				var is *dataset.BadSample
				require.True(t, errors.As(err, &is))
				require.Contains(t, is.Reason, "the server answered")
				require.Error(t, also)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, also)
			require.Equal(t, text, d.Text, "%s %d", name, i)
			var c struct{ Text, URL, Date, ID string }
			require.NoError(t, json.Unmarshal(raw, &c))
			require.Equal(t, []string{text, w.URL, w.Date, w.ID}, []string{c.Text, c.URL, c.Date, c.ID})
		}
	}
}

// warcRecord is a record with a content.
func warcRecord(kind, content string) string {
	return fmt.Sprintf("WARC/1.0\r\nWARC-Type: %s\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n", kind, len(content), content)
}

// A record that is torn is bad with its place, however it is torn, and those around it are read, whether the archive
// is plain or each record is compressed for itself.
func TestWARCTorn(t *testing.T) {
	a, c := warcRecord("conversion", "first"), warcRecord("conversion", "last WARC/1.0 of all")
	b := warcRecord("conversion", strings.Repeat("middle\n", 30))
	for name, torn := range map[string]string{"cut in its content": b[:150], "cut in its header": b[:40] + "\r\n",
		"no length":      strings.Replace(b, "Content-Length: 210", "Content-Length: -1", 1),
		"told too long":  strings.Replace(b, "Content-Length: 210", "Content-Length: 260", 1),
		"told over all":  strings.Replace(b, "Content-Length: 210", "Content-Length: 99999", 1),
		"told too short": strings.Replace(b, "Content-Length: 210", "Content-Length: 20", 1),
		"no line":        strings.Replace(b, "WARC-Type: conversion", "WARC-Type", 1), "damaged": "", "checksum": ""} {
		for _, end := range []string{".warc", ".warc.gz"} {
			if torn == "" && end == ".warc" {
				continue
			}
			var text bytes.Buffer
			want := []string{"first", "", "last WARC/1.0 of all"}
			for i, r := range []string{a, torn + "\r\n", c} {
				member := r
				if end == ".warc.gz" {
					member = gzipped(t, r)
					if i == 1 && name == "damaged" { // the member itself
						member = gzipped(t, b)
						member = member[:len(member)/2] + "\x00\x1f\x8b\x08\xff"
					}
					if i == 1 && name == "checksum" {
						member = gzipped(t, b)
						member = member[:len(member)-8] + "\xff" + member[len(member)-7:]
					}
				}
				text.WriteString(member)
			}
			path := filepath.Join(t.TempDir(), "x"+end)
			require.NoError(t, os.WriteFile(path, text.Bytes(), 0o600))
			s := formattest.Open(t, path, dataset.Options{})
			require.Equal(t, int64(3), s.Len(), "%s %s", name, end)
			for i, w := range want {
				d, err := s.Read(int64(i))
				if w == "" {
					var bad *dataset.BadSample
					require.ErrorAs(t, err, &bad, name)
					require.Equal(t, int64(len(a)), bad.Place.Offset)
					continue
				}
				require.NoError(t, err, "%s %d", name, i)
				require.Equal(t, w, d.Text)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "x.warc")
	require.NoError(t, os.WriteFile(path, []byte("WARC/1.0\r\nnothing"), 0o600))
	_, err := dataset.Open(path, dataset.Options{})
	require.ErrorContains(t, err, "the record at byte 0: a header ends early")
}

func gzipped(t *testing.T, s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(s))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

// Responses that are no texts are passed over as records of other types are, by the type that the server tells and
// by their first bytes, whatever it tells.
func TestWARCTypes(t *testing.T) {
	magic := map[string]string{"png": "\x89PNG\r\n\x1a\n\x00\x00", "jpeg": "\xff\xd8\xff\xe0\x00\x10JFIF", "gif": "GIF89a\x01\x00",
		"webp": "RIFF\x24\x00\x00\x00WEBPVP8 ", "pdf": "%PDF-1.7\n1 0 obj", "woff": "wOFF\x00\x01\x00\x00", "woff2": "wOF2\x00\x01",
		"ttf": "\x00\x01\x00\x00\x00\x0b", "mp4": "\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom", "webm": "\x1a\x45\xdf\xa3\x01",
		"mp3": "ID3\x03\x00\x00", "ogg": "OggS\x00\x02", "zip": "PK\x03\x04\x14\x00", "gzip": "\x1f\x8b\x08\x00",
		"wasm": "\x00asm\x01\x00", "ico": "\x00\x00\x01\x00\x01"}
	var all strings.Builder
	page := func(kind, body string) {
		if kind != "" {
			kind = "Content-Type: " + kind + "\r\n"
		}
		all.WriteString(warcRecord("response", "HTTP/1.1 200 OK\r\n"+kind+"\r\n"+body))
	}
	for _, b := range magic {
		for _, kind := range []string{"text/html; charset=utf-8", "", "text/plain", "application/octet-stream"} {
			page(kind, b)
		}
	}
	for _, kind := range []string{"image/svg+xml", "font/woff2", "video/mp4", "application/pdf", "application/json", "text/css",
		"application/javascript", "text/javascript; charset=utf-8"} {
		page(kind, "a text")
	}
	for _, kind := range []string{"text/html", "", "TEXT/PLAIN", "application/xhtml+xml", "application/octet-stream"} {
		page(kind, "<html><p>kept "+kind)
	}
	page("text/html", "")
	path := filepath.Join(t.TempDir(), "x.warc")
	require.NoError(t, os.WriteFile(path, []byte(all.String()), 0o600))
	s := formattest.Open(t, path, dataset.Options{})
	require.Equal(t, int64(6), s.Len())
	for i := range s.Len() {
		d, err := s.Read(i)
		require.NoError(t, err)
		require.True(t, i == 5 || strings.Contains(d.Text, "kept"), d.Text)
	}
}

// A page whose body was kept as it was sent is bad, and says why.
func TestWARCEncoded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "y.warc")
	require.NoError(t, os.WriteFile(path,
		[]byte(warcRecord("response", "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nx\x00")), 0o600))
	_, err := formattest.Open(t, path, dataset.Options{}).Read(0)
	require.ErrorContains(t, err, "its Content-Encoding is br: archives that keep bodies as they were sent are not read")
}

// What Python's libraries write with bzip2 and xz, also as several streams, is read as text and as shards.
func TestMoreCodecs(t *testing.T) {
	for _, end := range []string{".bz2", ".xz"} {
		docs := formattest.ReadAll(t, formattest.Open(t, filepath.Join("testdata", "codecs", "lines.jsonl"+end),
			dataset.Options{}))
		require.Len(t, docs, 500, end)
		require.Equal(t, "text 499 "+strings.Repeat("x", 499%90), docs[499].Text)
		docs = formattest.ReadAll(t, formattest.Open(t, filepath.Join("testdata", "codecs", "shard.tar"+end), dataset.Options{}))
		require.Len(t, docs, 60, end)
		require.Equal(t, "caption 59", string(docs[59].Parts[0].Bytes))
		b, err := os.ReadFile(filepath.Join("testdata", "codecs", "lines.jsonl"+end))
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "x.jsonl"+end)
		require.NoError(t, os.WriteFile(path, b[:len(b)*2/3], 0o600))
		_, err = dataset.Open(path, dataset.Options{})
		require.ErrorContains(t, err, "the compressed data are damaged", end)
	}
}
