package format

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// sampleDocs are documents that a format of the given kind must carry.
func sampleDocs(k dataset.Kind) (out []dataset.Document) {
	for i := range 23 {
		var d dataset.Document
		switch k {
		case dataset.KindText:
			d.Text = fmt.Sprintf("text %d\nwith \"quotes\", 日本語, \t tabs \\ and <tags> 🙂%s", i,
				strings.Repeat(" x", i))
		case dataset.KindTokens:
			for j := range i {
				d.Tokens = append(d.Tokens, int32(j*j*7%65000))
			}
		case dataset.KindChat:
			d.Messages = []dataset.Message{{Role: "system", Content: "Be brief."},
				{Role: "user", Content: fmt.Sprintf("q%d\n", i)}, {Role: "assistant", Content: "ä"}}
			for j := range i % 3 {
				d.Messages = append(d.Messages, dataset.Message{Role: "user", Content: fmt.Sprint(j)},
					dataset.Message{Role: "assistant", Content: "ok"})
			}
			d.Messages = d.Messages[min(1, i%2):]
			if i%4 == 0 {
				d.Tools = json.RawMessage(`[{"name":"f"}]`)
			}
		case dataset.KindPrompts:
			d.Key = fmt.Sprint(i)
			d.Parts = []dataset.Part{{Name: "json", Bytes: []byte(fmt.Sprintf(`{"prompt":"q%d%s","answer":%d}`, i,
				strings.Repeat(" ä", i%5), i))}}
		case dataset.KindPairs:
			d.Key = fmt.Sprint(i)
			d.Parts = []dataset.Part{{Name: "json", Bytes: []byte(fmt.Sprintf(
				`{"prompt":"q%d","chosen":"yes%s","rejected":"no","margin":0.%d}`, i, strings.Repeat(" ä", i%5), i))}}
		case dataset.KindSimilar:
			d.Key = fmt.Sprint(i)
			d.Parts = []dataset.Part{{Name: "json", Bytes: []byte(fmt.Sprintf(
				`{"query":"q%d","positive":"yes%s","negatives":["no"]}`, i, strings.Repeat(" ä", i%5)))}}
		case dataset.KindJudged:
			d.Key = fmt.Sprint(i)
			d.Parts = []dataset.Part{{Name: "json", Bytes: []byte(fmt.Sprintf(
				`{"prompt":"q%d","completion":"yes%s","label":%v}`, i, strings.Repeat(" ä", i%5), i%2 == 0))}}
		case dataset.KindParts:
			d.Key = fmt.Sprintf("dir.v1/%04d", i)
			for j, name := range []string{"jpg", "cls", "0.json"}[:1+i%3] {
				d.Parts = append(d.Parts,
					dataset.Part{Name: name, Bytes: bytes.Repeat([]byte{byte(i)}, 511*i%1600+j)})
			}
		}
		out = append(out, d)
	}
	for i := range out { // the answer to another prompt
		if other := out[(i+len(out)-1)%len(out)]; k == dataset.KindJudged {
			out[i].Parts = append(out[i].Parts, dataset.Part{Name: "other", Bytes: other.Parts[0].Bytes})
		}
	}
	return out
}

// TestRoundTripClaims holds every format to formattest.RoundTrip.
func TestRoundTripClaims(t *testing.T) {
	require.GreaterOrEqual(t, len(dataset.Formats()), 7)
	for _, f := range dataset.Formats() {
		if f.Write == nil {
			require.Equal(t, "imagefolder", f.Name, "it has tests of its own")
			continue
		}
		formattest.RoundTrip(t, f, sampleDocs(f.Kind))
	}
}

// Documents of many files together, each broken in its own way, are quarantined with their places; the rest is read.
func TestBadDocuments(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for _, c := range []struct {
		name, content string
		o             dataset.Options
		want          []string // texts, or "offset: reason"
	}{
		{"lines.jsonl", "{\"text\":\"a\"}\n\n  \nnot " +
			"json\n{\"text\":\"b\"}\r\n{\"text\":1}\n{\"x\":\"y\"}\n[1]\nnull\n{\"text\":\"\xff\"}\n{\"text\":null}\n{\"text\":\"c\"", dataset.Options{},
			[]string{"a", "17: it is not JSON: invalid character 'o' in literal null (expecting 'u') at " +
				"its byte 2", "b", `40: its "text" is not text`, `51: it has no key "text"; its keys are x`,
				"61: it is not a JSON object: cannot unmarshal array into Go value of type " +
					"map[string]json.RawMessage", "65: it is null, not a JSON object",
				"70: it is not UTF-8: byte 0xff at its byte 9",
				`83: its "text" is not text`,
				"97: it is not JSON: unexpected end of JSON input at its byte 11"}},
		{"empty.jsonl", "", dataset.Options{Format: "jsonl"}, []string{"0: the file is empty"}},
		{"blank.jsonl", " \n\n", dataset.Options{Format: "jsonl"}, []string{"0: the file is empty"}},
		{"bom.jsonl", "\uFEFF{\"body\":\"a\"}", dataset.Options{TextKey: "body"}, []string{"a"}},
		{"array.json", " [ {\"text\": \"a,]\\\"\"} ,\n{\"text\":\"b\"}, 7, {\"text\":", dataset.Options{},
			[]string{`a,]"`, "b", "37: it is not a JSON object: cannot unmarshal number into Go value of " +
				"type map[string]json.RawMessage",
				"40: it is not JSON: unexpected end of JSON input at its byte 8"}},
		{"empty.txt", "", dataset.Options{}, []string{"0: the file is empty"}},
		{"whole.txt", "a\n\nb", dataset.Options{}, []string{"a\n\nb"}},
		{"bad.txt", "ok\xe4\xbd", dataset.Options{},
			[]string{"0: it is not UTF-8: byte 0xe4 at its byte 2"}},
		{"long.txt", "0123456789", dataset.Options{BytesMax: 9},
			[]string{"0: a file of 10 bytes is over the limit of 9; cut it at blank lines or lines"}},
		{"paragraphs.txt", "\n\na\nb\n \n\nc\r\n\r\n\xff\n\nd", dataset.Options{Documents: "blank"},
			[]string{"a\nb", "c", "14: it is not UTF-8: byte 0xff at its byte 0", "d"}},
		{"lines.txt", "a\n\n  b\r\n0123456789\nc\n", dataset.Options{Documents: "line", BytesMax: 5},
			[]string{"a", "  b", "8: a record of 10 bytes is over the limit of 5", "c"}},
		{"none.txt", "", dataset.Options{Documents: "line"}, []string{"0: the file is empty"}},
	} {
		path := write(c.name, c.content)
		s := formattest.Open(t, path, c.o)
		var got []string
		for i := range s.Len() {
			d, err := s.Read(i)
			var bad *dataset.BadSample
			if errors.As(err, &bad) {
				require.Equal(t, path, bad.Place.File)
				got = append(got, fmt.Sprintf("%d: %s", bad.Place.Offset, bad.Reason))
				continue
			}
			require.NoError(t, err)
			got = append(got, d.Text)
		}
		require.Equal(t, c.want, got, c.name)
	}
}

// A line of 1 GiB is a bad document and never in memory.
func TestHugeLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge.jsonl")
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.WriteString("{\"text\":\"a\"}\n{\"text\":\"")
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<30))
	_, err = f.WriteAt([]byte("\"}\n{\"text\":\"b\"}\n"), 1<<30)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := formattest.Open(t, path, dataset.Options{})
	require.Equal(t, int64(3), s.Len())
	_, err = s.Read(1)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err,
		fmt.Sprintf("huge.jsonl at byte 13: a record of %d bytes is over the limit of %d", 1<<30-13+2,
			64<<20))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
	d, err := s.Read(2)
	require.NoError(t, err)
	require.Equal(t, "b", d.Text)
}

// Opening says what is wrong with a path.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.bin")
	require.NoError(t, os.WriteFile(path, []byte("??"), 0o600))
	for _, c := range []struct {
		path string
		o    dataset.Options
		want string
	}{
		{path, dataset.Options{}, "looks like none of the data formats alpaca, arrow, completion, energon, imagefolder, job, jsonl"},
		{path, dataset.Options{Format: "csv"}, `no data format is named "csv"; there are alpaca`},
		{filepath.Join(dir, "no.jsonl"), dataset.Options{}, "no such file"},
		{dir, dataset.Options{}, "no file matches *.txt"},
		{dir, dataset.Options{Pattern: "["}, "syntax error"},
		{filepath.Join(dir, "*.nope"), dataset.Options{}, "no file matches"},
		{path, dataset.Options{Format: "parquet"}, "no Parquet file"},
		{path, dataset.Options{Format: "megatron"}, "no such file"},
		{path, dataset.Options{Format: "text", Documents: "page"}, `documents "page"`},
		{dir, dataset.Options{Format: "jsonl"}, "directory"},
		{"testdata/texts.parquet", dataset.Options{TextKey: "score"}, `no column of texts named "score"`},
		{"testdata/texts.parquet", dataset.Options{TextKey: "nope"}, `no column of texts named "nope"`},
		{"testdata/ids_float32", dataset.Options{}, "data type 7 holds no token ids"},
	} {
		_, err := dataset.Open(c.path, c.o)
		require.ErrorContains(t, err, c.want, c.path)
	}
}

// Files in a directory are found by pattern, in sorted order, at any depth.
func TestTextDirectory(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"b/2.go", "a/1.go", "c.go", "a/x.txt", "a/b/0.go"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(fmt.Sprint(i)+"\n\nz"), 0o600))
	}
	texts := func(path string, o dataset.Options) (out []string) {
		for _, d := range formattest.ReadAll(t, formattest.Open(t, path, o)) {
			out = append(out, d.Text)
		}
		return out
	}
	require.Equal(t, []string{"1\n\nz", "4\n\nz", "0\n\nz", "2\n\nz"},
		texts(dir, dataset.Options{Pattern: "*.go"}))
	require.Equal(t, []string{"1", "z", "4", "z", "0", "z", "2", "z"},
		texts(dir, dataset.Options{Pattern: "*.go", Documents: "blank"}))
	require.Equal(t, []string{"2\n\nz"}, texts(filepath.Join(dir, "*.go"), dataset.Options{Format: "text"}))
}

// Indexes are found again, and built anew when the file has changed or they are damaged.
func TestIndexFile(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "a.jsonl")
	read := func(want ...string) {
		t.Helper()
		s := formattest.Open(t, path, dataset.Options{IndexDir: dir})
		require.Equal(t, int64(len(want)), s.Len())
		for i, w := range want {
			d, err := s.Read(int64(i))
			require.NoError(t, err)
			require.Equal(t, w, d.Text)
		}
	}
	indexes := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		return names
	}
	require.NoError(t, os.WriteFile(path, []byte("{\"text\":\"a\"}\n{\"text\":\"b\"}\n"), 0o600))
	read("a", "b")
	first := indexes()
	require.Len(t, first, 1)
	read("a", "b")
	require.Equal(t, first, indexes())
	for _, damage := range [][]byte{nil, []byte("LFINDEX1"), append([]byte("LFINDEX1"), 255, 255, 255, 255,
		255, 255, 255, 255), make([]byte, 48)} {
		require.NoError(t, os.WriteFile(first[0], damage, 0o600))
		read("a", "b")
	}
	require.NoError(t, os.WriteFile(path, []byte("{\"text\":\"changed\"}\n"), 0o600))
	read("changed")
	require.Len(t, indexes(), 2)
}

// Megatron-LM's files of every integer type, written by numpy, and of lies about lengths.
func TestMegatronGolden(t *testing.T) {
	want := [][]int32{{1, 2, 3}, {4, 5, 6}, nil, {7, 8, 9, 10}, nil}
	for _, typ := range []string{"uint8", "int8", "int16", "int32", "int64", "uint16"} {
		s := formattest.Open(t, "testdata/ids_"+typ, dataset.Options{})
		var got [][]int32
		for _, d := range formattest.ReadAll(t, s) {
			got = append(got, d.Tokens)
		}
		require.Equal(t, want, got, typ)
	}
	golden, err := os.ReadFile("testdata/ids_uint16.idx")
	require.NoError(t, err)
	prefix := filepath.Join(t.TempDir(), "own")
	w, err := NewIndexedWriter(prefix, 1000)
	require.NoError(t, err)
	for _, doc := range [][][]int32{{{1, 2, 3}}, {{4}, {5, 6}}, {}, {{7, 8, 9, 10}}, {{}}} {
		for _, seq := range doc {
			require.NoError(t, w.Add(seq))
		}
		w.EndDocument()
	}
	require.ErrorContains(t, w.Add([]int32{70000}), "does not fit 16 bits")
	w.lengths = w.lengths[:5]
	require.NoError(t, w.Close())
	own, err := os.ReadFile(prefix + ".idx")
	require.NoError(t, err)
	require.Equal(t, golden, own)
	big, err := NewIndexedWriter(prefix, 100_000)
	require.NoError(t, err)
	require.NoError(t, big.Add([]int32{70000}))
	big.EndDocument()
	require.NoError(t, big.Close())
	require.Equal(t, []int32{70000}, formattest.ReadAll(t, formattest.Open(t, prefix, dataset.Options{}))[0].Tokens)
}

func TestMegatronDamage(t *testing.T) {
	idx, err := os.ReadFile("testdata/ids_int32.idx")
	require.NoError(t, err)
	bin, err := os.ReadFile("testdata/ids_int32.bin")
	require.NoError(t, err)
	prefix := filepath.Join(t.TempDir(), "d")
	lengths, offsets, bounds := int(indexedHeader), int(indexedHeader)+4*5, int(indexedHeader)+12*5
	for _, c := range []struct {
		why    string
		at     int
		value  []byte
		header string // error of opening
		reason string // of document 1
	}{
		{"magic", 0, []byte("X"), "does not begin with MMIDIDX", ""},
		{"version", 9, []byte{2}, "version 2", ""},
		{"type", 17, []byte{9}, "data type 9", ""},
		{"huge counts", 18, bytes.Repeat([]byte{0xff}, 16), "do not fit", ""},
		{"counts that overflow", 18, binary.LittleEndian.AppendUint64(nil, 1<<61), "do not fit", ""},
		{"wrong counts", 18, []byte{4}, "the file has", ""},
		{"negative length", lengths + 4, []byte{0xff, 0xff, 0xff, 0xff}, "", "a sequence of -1 ids"},
		{"long length", lengths + 4, []byte{0xff, 0xff, 0xff, 0x7f}, "", "its ids have over 64 bytes"},
		{"offset behind the end", offsets + 8, []byte{0xff, 0xff}, "", "is not within the 40 bytes"},
		{"negative offset", offsets + 8, bytes.Repeat([]byte{0xff}, 8), "", "is not within the 40 bytes"},
		{"bound behind the end", bounds + 16, []byte{99}, "", "sequences 1 to 99 of 5"},
		{"descending bounds", bounds + 16, []byte{0}, "", "sequences 1 to 0 of 5"},
	} {
		broken := bytes.Clone(idx)
		copy(broken[c.at:], c.value)
		require.NoError(t, os.WriteFile(prefix+".idx", broken, 0o600))
		require.NoError(t, os.WriteFile(prefix+".bin", bin, 0o600))
		s, err := dataset.Open(prefix, dataset.Options{BytesMax: 64})
		if c.header != "" {
			require.ErrorContains(t, err, c.header, c.why)
			continue
		}
		require.NoError(t, err, c.why)
		_, err = s.Read(1)
		var bad *dataset.BadSample
		require.True(t, errors.As(err, &bad), "%s: %v", c.why, err)
		require.Contains(t, bad.Reason, c.reason, c.why)
		require.NoError(t, s.Close())
	}
}

// Parquet files of pyarrow: pages, row groups, compressions, nulls, nested conversations.
func TestParquetGolden(t *testing.T) {
	for _, name := range []string{"texts", "texts_indexed"} {
		s := formattest.Open(t, "testdata/"+name+".parquet", dataset.Options{})
		require.Equal(t, int64(500), s.Len())
		for _, i := range []int64{499, 0, 250, 119, 120, 121, 7} {
			d, err := s.Read(i)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("Document %d: ", i)+strings.Repeat("wörd ",
				int(i*7%23))+strings.Repeat("🙂", int(i%3)), d.Text)
			require.Equal(t, i, d.Place.Offset)
		}
	}
	s := formattest.Open(t, "testdata/holes.parquet", dataset.Options{TextKey: "body"})
	_, err := s.Read(1)
	require.ErrorContains(t, err, `row 1: column "body" is null`)
	d, err := s.Read(2)
	require.NoError(t, err)
	require.Equal(t, "", d.Text)

	chats := formattest.Open(t, "testdata/chats.parquet", dataset.Options{})
	require.Equal(t, dataset.KindChat, chats.Kind())
	for i, d := range formattest.ReadAll(t, chats) {
		require.Equal(t, []dataset.Message{{Role: "user", Content: fmt.Sprintf("Q%d", i)},
			{Role: "assistant", Content: strings.Repeat(fmt.Sprintf("A%d\n", i), i%4+1)}}, d.Messages)
		require.Equal(t, i%5 == 0, d.Tools != nil)
	}
	rows, err := OpenRows("testdata/odd.parquet", dataset.Options{})
	require.NoError(t, err)
	for i, want := range []string{
		`{"conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":null}],"meta":{"x":[1,2],"y":true}}`,
		`{"conversations":[],"meta":{"x":[],"y":null}}`, `{"conversations":null,"meta":null}`} {
		b, _, err := rows.Record(int64(i))
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	require.NoError(t, rows.Close())
}

// A Parquet file cut or flipped anywhere is an error or bad documents, never a panic or wrong text.
func TestParquetDamage(t *testing.T) {
	whole, err := os.ReadFile("testdata/texts.parquet")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "d.parquet")
	for at := 0; at < len(whole); at += 97 {
		broken := bytes.Clone(whole)
		broken[at] ^= 0x55
		if at%2 == 0 {
			broken = whole[:at]
		}
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		s, err := dataset.Open(path, dataset.Options{Format: "parquet"})
		if err != nil {
			continue
		}
		for i := int64(0); i < min(s.Len(), 600); i += 60 {
			_, err := s.Read(i)
			var bad *dataset.BadSample
			require.True(t, err == nil || errors.As(err, &bad), "byte %d: %v", at, err)
		}
		require.NoError(t, s.Close())
	}
}

// The shapes of chat data, with what each may leave out.
func TestChatShapes(t *testing.T) {
	dir := t.TempDir()
	user, assistant, system := func(s string) dataset.Message {
		return dataset.Message{Role: "user", Content: s}
	},
		func(s string) dataset.Message { return dataset.Message{Role: "assistant", Content: s} },
		func(s string) dataset.Message { return dataset.Message{Role: "system", Content: s} }
	for i, c := range []struct {
		line string
		o    dataset.Options
		want []dataset.Message
		bad  string
	}{
		{`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`,
			dataset.Options{}, []dataset.Message{user("a"), assistant("b")}, ""},
		{`{"messages":[{"role":"assistant","content":null,"tool_calls":[1]}]}`, dataset.Options{},
			[]dataset.Message{{Role: "assistant",
				Raw: json.RawMessage(`{"role":"assistant","content":null,"tool_calls":[1]}`)}}, ""},
		{`{"messages":[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"r"}]}`, dataset.Options{},
			[]dataset.Message{{Role: "assistant",
				Raw: json.RawMessage(`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`)},
				{Role: "tool", Content: "r",
					Raw: json.RawMessage(`{"content":"r","name":"f","role":"tool","tool_call_id":"f"}`)}},
			""},
		{`{"messages":[{"role":"assistant","content":null,"function_call":7}]}`, dataset.Options{}, nil,
			"the function_call of turn 0 is not an object"},
		{`{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, dataset.Options{},
			[]dataset.Message{{Role: "user",
				Raw: json.RawMessage(`{"role":"user","content":[{"type":"text"}]}`)}}, ""},
		{`{"messages":[{"role":"user","content":"a"}],"tools":"[{\"name\":\"f\"}]"}`, dataset.Options{},
			[]dataset.Message{user("a")}, ""},
		{`{"messages":[{"who":"Q","what":"a","x":1},{"who":"A","what":"b"}]}`,
			dataset.Options{Tags: dataset.Tags{Role: "who", Content: "what", User: "Q", Assistant: "A"}},
			[]dataset.Message{{Role: "user", Content: "a",
				Raw: json.RawMessage(`{"content":"a","role":"user","x":1}`)}, assistant("b")}, ""},
		{`{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"},{"from":"observation","value":"c"}],"system":"s"}`, dataset.Options{}, []dataset.Message{system("s"), user("a"), assistant("b"), {Role: "tool", Content: "c"}}, ""},
		{`{"instruction":"a","input":"i","output":"b","system":"s","history":[["x","y"]]}`,
			dataset.Options{}, []dataset.Message{system("s"), user("x"), assistant("y"), user("a\ni"),
				assistant("b")}, ""},
		{`{"instruction":"a","output":"b","input":null}`, dataset.Options{},
			[]dataset.Message{user("a"), assistant("b")}, ""},
		{`{"messages":[]}`, dataset.Options{}, nil, "it has no messages"},
		{`{"messages":7}`, dataset.Options{}, nil, `"messages" is not a list`},
		{`{"messages":[1]}`, dataset.Options{}, nil, "messages[0] is not an object"},
		{`{"messages":[{"content":"a"}]}`, dataset.Options{}, nil, `messages[0] has no text "role"`},
		{`{"messages":[{"role":"user","content":"a"}],"tools":"nope"}`, dataset.Options{}, nil,
			`"tools" is a text that is not JSON`},
		{`{"messages":[{"role":"user","content":"a"}],"tools":{}}`, dataset.Options{}, nil,
			`"tools" is not a list`},
		{`{"conversations":[{"from":"human","value":"a"}],"system":3}`, dataset.Options{}, nil,
			`"system" is not text`},
		{`{"instruction":"a","output":3}`, dataset.Options{}, nil, `"output" is not text`},
		{`{"instruction":"a","output":"b","history":[1]}`, dataset.Options{}, nil, "its history"},
		{`{"x":1}`, dataset.Options{Format: "openai"}, nil, `it has no key "messages"`},
	} {
		path := filepath.Join(dir, fmt.Sprintf("%d.jsonl", i))
		require.NoError(t, os.WriteFile(path, []byte(c.line), 0o600))
		d, err := formattest.Open(t, path, c.o).Read(0)
		if c.bad != "" {
			var bad *dataset.BadSample
			require.True(t, errors.As(err, &bad), "%s: %v", c.line, err)
			require.Contains(t, bad.Reason, c.bad)
			continue
		}
		require.NoError(t, err, c.line)
		require.Equal(t, c.want, d.Messages, c.line)
		require.Equal(t, strings.Contains(c.line, `"tools"`), d.Tools != nil)
	}
}

func FuzzIndexed(f *testing.F) {
	idx, err := os.ReadFile("testdata/ids_uint16.idx")
	require.NoError(f, err)
	bin, err := os.ReadFile("testdata/ids_uint16.bin")
	require.NoError(f, err)
	f.Add(idx, bin)
	f.Add(idx[:40], bin)
	f.Fuzz(func(t *testing.T, idx, bin []byte) {
		prefix := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(prefix+".idx", idx, 0o600))
		require.NoError(t, os.WriteFile(prefix+".bin", bin, 0o600))
		x, err := openIndexed(prefix, dataset.Options{BytesMax: 1 << 16})
		if err != nil {
			return
		}
		for i := range min(x.Len(), 100) {
			d, err := x.Read(i)
			if err == nil && len(d.Tokens) > 1<<16 {
				t.Fatalf("%d ids", len(d.Tokens))
			}
		}
		require.NoError(t, x.Close())
	})
}

// FuzzJSON: every file of lines or of an array opens or is refused, and every document is read or bad.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{"{\"text\":\"a\"}\n", "[{\"text\":\"a\"}, 1]", "[", "\n\n",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "[\"\\\"", "{\"conversations\":[{}]}", "]",
		"[]]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		path := filepath.Join(t.TempDir(), "f.jsonl")
		require.NoError(t, os.WriteFile(path, file, 0o600))
		s, err := dataset.Open(path, dataset.Options{BytesMax: 1 << 12})
		if err != nil {
			return
		}
		for i := range s.Len() {
			var bad *dataset.BadSample
			if _, err := s.Read(i); err != nil && !errors.As(err, &bad) {
				t.Fatalf("document %d: %v", i, err)
			}
		}
		require.NoError(t, s.Close())
	})
}

// TestFolder: a folder of shards is what a pattern of them is; one of files of two formats, and one with plain texts,
// are not guessed.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("b.jsonl", `{"text": "two"}`+"\n")
	write("a.jsonl", `{"text": "one"}`+"\n")
	write("a.jsonl.idx", "no data\n")
	write(".hidden.tar", "no data\n")
	write("dataset_info.json", `{"splits": []}`)
	s, err := dataset.Open(dir, dataset.Options{})
	require.NoError(t, err)
	p, err := dataset.Open(filepath.Join(dir, "*.jsonl"), dataset.Options{})
	require.NoError(t, err)
	require.Equal(t, p.Fingerprint(), s.Fingerprint())
	require.EqualValues(t, 2, s.Len())
	d, err := s.Read(0)
	require.NoError(t, err)
	require.Equal(t, "one", d.Text)
	require.NoError(t, errors.Join(s.Close(), p.Close()))

	write("c.parquet", "PAR1")
	_, err = dataset.Open(dir, dataset.Options{})
	require.ErrorContains(t, err, "the folder has files of jsonl (a.jsonl) and of parquet (c.parquet): name those of one")
	s, err = dataset.Open(dir, dataset.Options{Format: "jsonl"})
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Len())
	require.NoError(t, s.Close())

	write("d.txt", "plain")
	s, err = dataset.Open(dir, dataset.Options{})
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Len())
	require.NoError(t, s.Close())
}
