package format

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

var rewrite = flag.Bool("rewrite", false, "write the files that the tests compare with")

const shardDir = "testdata/webdataset"

type goldenSample struct {
	Key   string            `json:"key"`
	Parts map[string]string `json:"parts"`
}

func samplesOf(t *testing.T, s dataset.Source) (out []goldenSample) {
	for i := range s.Len() {
		d, err := s.Read(i)
		require.NoError(t, err)
		g := goldenSample{d.Key, map[string]string{}}
		for _, p := range d.Parts {
			sum := sha256.Sum256(p.Bytes)
			g.Parts[p.Name] = hex.EncodeToString(sum[:])[:16]
		}
		out = append(out, g)
	}
	return out
}

// What Python's webdataset reads from shards, its own and ours, is what is read here.
func TestShardGolden(t *testing.T) {
	b, err := os.ReadFile(shardDir + "/read.json")
	require.NoError(t, err)
	var want map[string][]goldenSample
	require.NoError(t, json.Unmarshal(b, &want))
	require.Len(t, want, 5)
	for name, samples := range want {
		require.Greater(t, len(samples), 5)
		for _, o := range []dataset.Options{{}, {IndexDir: t.TempDir()}} {
			require.Equal(t, samples, samplesOf(t, formattest.Open(t, filepath.Join(shardDir, name), o)), name)
		}
	}
}

// The shard that Python read is byte for byte the one that is written here.
func TestShardBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	if *rewrite {
		path = shardDir + "/lfactor.tar"
	}
	w, err := CreateShard(path)
	require.NoError(t, err)
	for _, d := range append(sampleDocs(dataset.KindParts)[:8],
		dataset.Document{Key: strings.Repeat("long/", 60) + "größe",
			Parts: []dataset.Part{{Name: "txt", Bytes: []byte("ö")}}}) {
		require.NoError(t, w.Add(d.Key, d.Parts))
	}
	require.NoError(t, w.Close())
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	want, err := os.ReadFile(shardDir + "/lfactor.tar")
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}

// Compressed shards give the same samples at random places, also when their expanded form left the disk between reads.
func TestShardCompressed(t *testing.T) {
	docs := sampleDocs(dataset.KindParts)
	for _, ext := range []string{".tar.gz", ".tgz", ".tar.zst"} {
		path := filepath.Join(t.TempDir(), "s"+ext)
		w, err := CreateShard(path)
		require.NoError(t, err)
		for _, d := range docs {
			require.NoError(t, w.Add(d.Key, d.Parts))
		}
		require.NoError(t, w.Close())
		s := formattest.Open(t, path, dataset.Options{})
		for k := range docs {
			i := (k * 7) % len(docs)
			d, err := s.Read(int64(i))
			require.NoError(t, err)
			require.Equal(t, docs[i].Parts, d.Parts)
			if k == 3 {
				require.NoError(t, s.(*shard).spill.Close())
			}
		}
	}
}

func TestShardWriterRefuses(t *testing.T) {
	w, err := CreateShard(filepath.Join(t.TempDir(), "x.tar"))
	require.NoError(t, err)
	one := func(name string) []dataset.Part { return []dataset.Part{{Name: name, Bytes: []byte("x")}} }
	require.NoError(t, w.Add("a", one("txt")))
	for want, add := range map[string]error{
		"the same key":                        w.Add("a", one("txt")),
		`would not be read as its part "TXT"`: w.Add("b", one("TXT")),
		"\"b.c.txt\" would not":               w.Add("b.c", one("txt")),
		"\"../b.txt\" would not":              w.Add("../b", one("txt")),
		"\"__b__/x.txt\" would not":           w.Add("__b__/x", one("txt")),
		"0 files":                             w.Add("b", nil),
		"twice":                               w.Add("b", append(one("txt"), one("txt")...)),
	} {
		require.ErrorContains(t, add, want)
	}
	require.Equal(t, int64(1024), w.Bytes())
	require.NoError(t, w.Close())
}

// tarOf writes headers as they are, each with so many bytes behind it as it says or content has.
func tarOf(t testing.TB, members ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size)))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func file(name string, size int64) tar.Header { return tar.Header{Name: name, Size: size} }

// rawHeader is a header with a size that archive/tar would not write.
func rawHeader(name string, kind byte, size int64) []byte {
	h := make([]byte, tarBlock)
	copy(h, name)
	copy(h[100:], "0000644\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00", size))
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	sum := 8 * int(' ')
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

func paxOf(record string) []byte {
	n := len(record) + 4
	b := fmt.Appendf(nil, "%02d %s\n", n, record)
	return append(rawHeader("x", 'x', int64(len(b))), append(b, make([]byte, tarBlock-len(b))...)...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// outcomes lists keys with part names, or the reasons of bad samples.
func outcomes(t testing.TB, s dataset.Source) (out []string) {
	for i := range s.Len() {
		d, err := s.Read(i)
		var bad *dataset.BadSample
		if errors.As(err, &bad) {
			require.Equal(t, s.Name(), bad.Place.File)
			out = append(out, fmt.Sprintf("%d: %s", bad.Place.Offset, bad.Reason))
			continue
		}
		require.NoError(t, err)
		var names []string
		for _, p := range d.Parts {
			names = append(names, p.Name)
		}
		out = append(out, d.Key+" "+strings.Join(names, ","))
	}
	streamEqual(t, s)
	return out
}

// streamEqual holds the way through all samples to the one sample by sample: the same keys, files and
// reasons at the same places, from any sample on.
func streamEqual(t testing.TB, s dataset.Source) {
	n := s.Len()
	for _, from := range []int64{0, n / 2, n - 1} {
		at := max(from, 0)
		require.NoError(t, dataset.Stream(context.Background(), s, at, n, func(i int64, d *dataset.Document,
			bad *dataset.BadSample) error {
			require.Equal(t, at, i)
			at++
			want, err := s.Read(i)
			var wantBad *dataset.BadSample
			errors.As(err, &wantBad)
			require.Equal(t, want.Place, d.Place)
			if bad != nil {
				require.NotNil(t, wantBad, bad.Reason)
				require.Equal(t, wantBad.Place, bad.Place)
				if s.(*shard).spill == nil { // the way through a compressed shard knows better what is wrong
					require.Equal(t, wantBad.Reason, bad.Reason)
				}
				return nil
			}
			require.NoError(t, err)
			require.Equal(t, want.Key, d.Key)
			require.Equal(t, len(want.Parts), len(d.Parts))
			for k := range d.Parts {
				require.Equal(t, want.Parts[k], d.Parts[k])
			}
			return nil
		}))
		require.Equal(t, n, at)
	}
}

// Every kind of broken or hostile shard gives its good samples and a place and a reason for each bad one.
//
//lfvet:long a table of cases
func TestShardBad(t *testing.T) {
	good := tarOf(t, file("a.txt", 3), file("a.json", 600), file("b.txt", 1))
	twoDone := good[:len(good)-2*tarBlock] // without the end of the archive
	for _, c := range []struct {
		name string
		b    []byte
		want []string
	}{
		{"empty file", nil, []string{"0: the file is empty"}},
		{"no samples", make([]byte, 1024), nil},
		{"no end marks", twoDone, []string{"a txt,json", "b txt"}},
		{"no tar", bytes.Repeat([]byte("garbage "), 200),
			[]string{`0: sample "": at byte 0 there is no tar header (the check sum differs); the rest of the shard is not read`}},
		{"cut in a header", good[:300], []string{`0: sample "": at byte 0 the shard ends within a header`}},
		{"cut in content", good[:1600],
			[]string{`0: sample "a": at byte 1024 a member of 600 bytes is announced and 64 bytes are left`}},
		{"garbage between", join(twoDone, bytes.Repeat([]byte("?"), 2048)),
			[]string{"a txt,json", `2560: sample "b": at byte 3584 there is no tar header (the check sum differs); the rest of the shard is not read`}},
		{"lying size", join(twoDone, rawHeader("c.txt", '0', 1<<32)),
			[]string{"a txt,json", `2560: sample "b": at byte 3584 a member of 4294967296 bytes is announced and 0 bytes are left`}},
		{"too large", tarOf(t, file("a.txt", 300<<10), file("b.txt", 1)),
			[]string{`0: sample "a": its files have over 65536 bytes`, "b txt"}},
		{"too large together", tarOf(t, file("a.txt", 40<<10), file("a.bin", 40<<10), file("b.txt", 1)),
			[]string{`0: sample "a": its files have over 65536 bytes`, "b txt"}},
		{"leaves", tarOf(t, file("../a.txt", 1), file("b/../../c.txt", 1), file("/etc/x.txt", 1),
			file("b..c.txt", 1)),
			[]string{`0: sample "": "../a.txt" at byte 0: its name leads out of the shard's folder`,
				`1024: sample "": "b/../../c.txt" at byte 1024: its name leads out of the shard's folder`,
				`2048: sample "": "/etc/x.txt" at byte 2048: its name leads out of the shard's folder`,
				"b .c.txt"}},
		{"links and devices", tarOf(t, file("a.txt", 1), tar.Header{Name: "a.jpg", Typeflag: tar.TypeSymlink,
			Linkname: "/etc/passwd"}, tar.Header{Name: "b.txt", Typeflag: tar.TypeLink, Linkname: "a.txt"},
			tar.Header{Name: "c.txt", Typeflag: tar.TypeChar},
			tar.Header{Name: "d.txt", Typeflag: tar.TypeFifo},
			tar.Header{Name: "d", Typeflag: tar.TypeDir}, file("e.txt", 1)),
			[]string{`0: sample "a": "a.jpg" at byte 1024: it is a symbolic link`,
				`1536: sample "b": "b.txt" at byte 1536: it is a hard link`,
				`2048: sample "c": "c.txt" at byte 2048: it is a character device`,
				`2560: sample "d": "d.txt" at byte 2560: it is a pipe`, "e txt"}},
		{"twice", tarOf(t, file("a.txt", 1), file("a.TXT", 1), file("b.txt", 1)),
			[]string{`0: sample "a": "a.TXT" at byte 1024: it is there twice`, "b txt"}},
		{"header of 2 MiB", join(rawHeader("x", 'x', 2<<20), make([]byte, 2<<20), rawHeader("a.txt", '0', 0),
			good), []string{`0: sample "a": "a.txt" at byte 0: its extension header has 2097152 bytes, over the limit of 1048576`}},
		{"header of 1 GiB", join(twoDone, rawHeader("x", 'L', 1<<30)),
			[]string{"a txt,json", `2560: sample "b": at byte 3584 a member of 1073741824 bytes is announced and 0 bytes are left`}},
		{"pax size", join(paxOf("size=1"), rawHeader("a.txt", '0', 0), []byte("x"), make([]byte, 511), good),
			[]string{`0: sample "a": "a.txt" at byte 2048: it is there twice`, "b txt"}},
		{"pax size lies", join(paxOf("size=-1"), rawHeader("c.txt", '0', 0), good),
			[]string{`0: sample "c": "c.txt" at byte 0: its PAX header gives a size that is not a number`,
				"a txt,json", "b txt"}},
		{"sparse", join(paxOf("GNU.sparse.major=1"), rawHeader("c.txt", '0', 0), rawHeader("d.txt", 'S', 0),
			good), []string{`0: sample "c": "c.txt" at byte 0: it is a sparse file`,
			`1536: sample "d": "d.txt" at byte 1536: it is a sparse file`, "a txt,json", "b txt"}},
		{"extension alone", join(twoDone, paxOf("path=q.txt"), make([]byte, 1024)),
			[]string{"a txt,json", `2560: sample "b": at byte 4608 an extension header has no member behind it`}},
		{"joined by cat", join(good, make([]byte, 7*tarBlock), tarOf(t, file("c.txt", 1), file("d.txt",
			700)),
			tarOf(t, file("d.txt", 1))), []string{"a txt,json", "b txt", "c txt", "d txt", "d txt"}},
		{"text behind the end", join(good, []byte(strings.Repeat("text", 200))), []string{"a txt,json",
			"b txt"}},
		{"many files", bytes.Repeat(rawHeader("a.txt", '0', 0), 10000),
			[]string{`0: sample "a": "a.txt" at byte 512: it is there twice`}},
	} {
		if c.name == "header of 2 MiB" { // the sample goes on with the same key
			c.want = append(c.want, "b txt")
		}
		path := filepath.Join(t.TempDir(), "x.tar")
		require.NoError(t, os.WriteFile(path, c.b, 0o600))
		for _, dir := range []string{"", t.TempDir()} {
			require.Equal(t, c.want,
				fixKeys(outcomes(t, formattest.Open(t, path, dataset.Options{BytesMax: 64 << 10, IndexDir: dir}))),
				c.name)
		}
	}
}

// fixKeys drops the key of names that lead out, which the reason has too.
func fixKeys(in []string) []string {
	for i, s := range in {
		if strings.Contains(s, "leads out") {
			head, tail, _ := strings.Cut(s, "sample ")
			_, tail, _ = strings.Cut(tail, ": ")
			in[i] = head + `sample "": ` + tail
		}
	}
	return in
}

// Damaged compressed shards give what lies before the damage; one that expands without end stops within its bound.
func TestShardBadCompressed(t *testing.T) {
	plain := tarOf(t, file("a.txt", 3), file("b.txt", 60_000), file("c.txt", 1))
	// nothing to compress: damage has its place
	_, err := rand.NewChaCha8([32]byte{}).Read(plain[1700:60_000])
	require.NoError(t, err)
	var gz, zs bytes.Buffer
	z := gzip.NewWriter(&gz)
	_, err = z.Write(plain)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	w, err := zstd.NewWriter(&zs)
	require.NoError(t, err)
	_, err = w.Write(plain)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for name, b := range map[string][]byte{"gz": gz.Bytes(), "zst": zs.Bytes()} {
		path := filepath.Join(t.TempDir(), "x.tar."+name)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		require.Equal(t, []string{"a txt", "b txt", "c txt"}, outcomes(t, formattest.Open(t, path, dataset.Options{})))
		for cut := 2; cut < len(b); cut += 977 {
			require.NoError(t, os.WriteFile(path, b[:cut], 0o600))
			got := outcomes(t, formattest.Open(t, path, dataset.Options{Format: "webdataset"}))
			if cut < len(b)-16 { // behind is only what follows the archive's end
				require.Contains(t, got[len(got)-1], ": sample ", cut)
			}
		}
	}
}

// A gigabyte of zeros in a member: the walk stops at the bound, in constant memory.
func TestShardBomb(t *testing.T) {
	b := gzip1000(t)
	x, err := expand(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	x.left = 1 << 20
	_, err = (&forward{in: x}).ReadAt(make([]byte, 1), 2<<20)
	require.ErrorContains(t, err, "over 200 times")
	x.Close()
}

func gzip1000(t *testing.T) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(make([]byte, 8<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

// Ten million members take memory for the index alone, and their walk reads each once: shown at a tenth of the size.
func TestShardManyMembers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	f, err := os.Create(path)
	require.NoError(t, err)
	const n = 100_000
	block := make([]byte, 0, 1000*tarBlock)
	for i := range n {
		block = append(block, rawHeader(fmt.Sprintf("%d.txt", i), '0', 0)...)
		if len(block) == cap(block) {
			_, err := f.Write(block)
			require.NoError(t, err)
			block = block[:0]
		}
	}
	require.NoError(t, f.Close())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := formattest.Open(t, path, dataset.Options{})
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Equal(t, int64(n), s.Len())
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(4<<20))
	d, err := s.Read(n - 1)
	require.NoError(t, err)
	require.Equal(t, "99999", d.Key)
}

// A shard of more samples than the index may hold keeps the first, and the rest is one bad sample.
func TestShardSampleLimit(t *testing.T) {
	b := tarOf(t, file("a.txt", 1), file("b.txt", 1), file("c.txt", 1), file("d.txt", 1))
	var got []span
	require.NoError(t, scanSamples(&tarReader{in: bytes.NewReader(b), size: int64(len(b))}, 2,
		func(s span) error { got = append(got, s); return nil }))
	require.Equal(t, []span{{0, 1024}, {1024, 4096}}, got)
	var d dataset.Document
	require.ErrorContains(t, readSample(bytes.NewReader(b), int64(len(b)), got[1], 1<<20, &d),
		"or the shard has over")
}

// An index next to the shard is used when it fits, and one that lies costs samples, never the run.
func TestWriteIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	require.NoError(t, os.WriteFile(path, tarOf(t, file("a.txt", 3), file("a.json", 600),
		file("__meta__/x.json", 1), file("b.txt", 1)), 0o600))
	n, err := WriteIndex(path)
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	idx, err := os.ReadFile(path + ".idx")
	require.NoError(t, err)
	require.Equal(t, join([]byte{0, 0, 0, 0, 0, 0, 0, 0}, []byte{0, 14, 0, 0, 0, 0, 0, 0},
		[]byte{0, 18, 0, 0, 0, 0, 0, 0}), idx)
	require.Equal(t, []string{"a txt,json", "b txt"}, outcomes(t, formattest.Open(t, path, dataset.Options{})))
	idx[9] = 4
	require.NoError(t, os.WriteFile(path+".idx", idx, 0o600))
	require.Equal(t, []string{"a txt",
		"1024: sample \"a\": \"b.txt\" at byte 3584: it belongs to another sample: the index is wrong, " +
			"or the shard has over 4194304 samples"},
		outcomes(t, formattest.Open(t, path, dataset.Options{})))
	idx[15] = 4
	require.NoError(t, os.WriteFile(path+".idx", idx, 0o600))
	require.Equal(t, []string{"a txt,json", "b txt"}, outcomes(t, formattest.Open(t, path, dataset.Options{})))
	require.NoError(t, os.WriteFile(path, tarOf(t, file("a.txt", 600))[:700], 0o600))
	_, err = WriteIndex(path)
	require.ErrorContains(t, err, "cut off")
	require.NoError(t, os.WriteFile(path, gzip1000(t), 0o600))
	_, err = WriteIndex(path)
	require.ErrorContains(t, err, "compressed")
}

// FuzzShard holds the walk, the reader of one sample and the stream to each other on hostile archives.
func FuzzShard(f *testing.F) {
	f.Add([]byte("\x00a\x03\x00a\x90\x00b\x01"))
	f.Add([]byte("\x01\x06size=7\x05a\x30\x04\x01"))
	f.Add([]byte("\x02\x06l.text\x05a0\xff\x06\x07\x03\x20"))
	f.Fuzz(func(t *testing.T, script []byte) {
		b := fuzzArchive(script)
		var spans []span
		last := int64(0)
		require.NoError(t, scanSamples(&tarReader{in: bytes.NewReader(b), size: int64(len(b))}, 100,
			func(s span) error {
				require.LessOrEqual(t, last, s.start)
				require.Less(t, s.start, s.end)
				last = s.start
				spans = append(spans, s)
				return nil
			}))
		r := &sampleReader{limit: 1 << 12, size: int64(len(b)),
			window: slider{in: bytes.NewReader(b), buf: make([]byte, 1024)}}
		r.tar = tarReader{in: &r.window, size: r.size}
		for _, s := range spans {
			var d, e dataset.Document
			var bad *dataset.BadSample
			if err := readSample(bytes.NewReader(b), int64(len(b)), s, 1<<12, &d); err != nil {
				require.ErrorAs(t, err, &bad)
			}
			reason, err := r.read(s, &e)
			require.NoError(t, err)
			require.Equal(t, bad == nil, reason == "", "%s %v", reason, bad)
			require.Equal(t, d.Key, e.Key)
			if bad == nil {
				require.Equal(t, d.Parts, e.Parts)
			}
		}
		parsed, _ := parseIdx(script, 1<<40)
		for _, s := range parsed {
			require.Less(t, s.start, s.end)
		}
	})
}

// fuzzArchive builds an archive of a short script, so that the fuzzer need not find check sums: members, PAX
// records, long names, garbage, headers with any kind and size, zeros, and a cut.
func fuzzArchive(script []byte) (out []byte) {
	next := func() byte {
		if len(script) == 0 {
			return 0
		}
		c := script[0]
		script = script[1:]
		return c
	}
	text := func() string {
		n := min(int(next()), len(script))
		s := string(script[:n])
		script = script[n:]
		return s
	}
	for len(script) > 0 && len(out) < 1<<16 {
		switch next() % 8 {
		case 0:
			name, size := string(rune('a'+next()%4))+"."+string(rune('a'+next()%3)), int64(next())*7
			out = append(append(out, rawHeader(name, '0', size)...), make([]byte, padded(size))...)
		case 1:
			record := text()
			out = append(out, paxOf(record)...)
		case 2:
			name := text()
			out = append(append(out, rawHeader("x", 'L', int64(len(name)))...),
				append([]byte(name), make([]byte, padded(int64(len(name)))-int64(len(name)))...)...)
		case 3:
			out = append(out, bytes.Repeat([]byte{next()}, int(next()))...)
		case 4:
			out = append(out, make([]byte, tarBlock)...)
		case 5:
			out = append(out, rawHeader(string(rune('a'+next()%4))+".q", next(),
				int64(next())<<(next()%40))...)
		case 6:
			name := text()
			out = append(out, rawHeader(name[:min(len(name), 99)], '0', 0)...)
		case 7:
			out = out[:max(0, len(out)-int(next()))]
		}
	}
	return out
}
