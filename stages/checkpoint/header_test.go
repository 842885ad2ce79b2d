package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// raw builds a safetensors file from the text of its header and data.
func raw(header string, data int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), make([]byte, data)...)
}

func TestRefusesBadHeaders(t *testing.T) {
	one := `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	huge := binary.LittleEndian.AppendUint64(nil, 100<<20)
	for name, c := range map[string]struct {
		file  []byte
		fault Fault
		why   string
	}{
		"empty file": {nil, Truncated, "0 bytes are too few"},
		"100 MB header": {append(huge, make([]byte, 100)...), Malformed,
			"claims 104857600 bytes, limit 67108864"},
		"length 2^64-1":    {bytes.Repeat([]byte{255}, 16), Malformed, "claims 18446744073709551615 bytes"},
		"header cut off":   {raw(one, 8)[:30], Truncated, "header claims 54 bytes, the file has 22"},
		"data cut off":     {raw(one, 7), Truncated, "ends at byte 8 of the data, the file has 7"},
		"data left over":   {raw(one, 9), Malformed, "1 bytes after the last tensor"},
		"no JSON":          {raw("hello", 0), Malformed, "does not begin with '{'"},
		"empty header":     {raw("", 0), Malformed, "does not begin with '{'"},
		"unfinished JSON":  {raw(`{"a":`, 0), Malformed, "EOF"},
		"text after JSON":  {raw(one+"x", 8), Malformed, "text after the JSON object"},
		"duplicate tensor": {raw(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), Malformed, "key a appears twice"},
		"duplicate key": {raw(`{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}`,
			8), Malformed, `key "dtype" appears twice`},
		"unknown key": {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}}`, 8),
			Malformed, `unknown key "x"`},
		"missing key": {raw(`{"a":{"dtype":"F32","shape":[2]}}`, 8), Malformed,
			"wants dtype, shape and two data_offsets"},
		"null shape": {raw(`{"a":{"dtype":"F32","shape":null,"data_offsets":[0,4]}}`, 4), Malformed,
			"wants dtype, shape and two data_offsets"},
		"three offsets": {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}}`, 8), Malformed,
			"two data_offsets"},
		"unknown dtype": {raw(`{"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}`, 8), Malformed,
			`unknown dtype "F99"`},
		"negative dimension": {raw(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8), Malformed,
			"negative dimension"},
		"product overflows": {raw(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}}`, 0), Malformed, "more bits than 63 bits count"},
		"half a byte": {raw(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, 2), Malformed,
			"does not fill whole bytes"},
		"too many axes": {raw(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("1,",
			32)+`1],"data_offsets":[0,1]}}`, 1), Malformed, "33 axes, limit 32"},
		"negative offset": {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[-4,4]}}`, 8), Malformed,
			"do not span"},
		"offsets too far": {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}}`, 12), Malformed,
			"do not span the 8 bytes"},
		"fractional shape": {raw(`{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,6]}}`, 6), Malformed,
			"number 1.5"},
		"overlap":      {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), Malformed, "tensor b: malformed: overlaps the tensor before it by 4 bytes"},
		"gap":          {raw(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, 12), Malformed, "leaves a gap of 4 bytes"},
		"bad metadata": {raw(`{"__metadata__":{"a":1}}`, 0), Malformed, "cannot unmarshal"},
		"control characters": {raw(`{"\u001b[2J":{"dtype":"F9","shape":[1],"data_offsets":[0,4]}}`, 4),
			Malformed, `tensor "\x1b[2J"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newFile(bytes.NewReader(c.file), "f.safetensors", int64(len(c.file)))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.fault, e.Fault)
			require.Equal(t, "f.safetensors", e.File)
			require.ErrorContains(t, err, c.why)
		})
	}
}

func TestNarrowTypesAreReadWhole(t *testing.T) {
	text := raw(`{"a":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]}}`, 4)
	copy(text[len(text)-4:], "wxyz")
	f, err := newFile(bytes.NewReader(text), "f", int64(len(text)))
	require.NoError(t, err)
	dst := make([]byte, 4)
	require.NoError(t, f.ReadRanges("a", [][2]int{{0, 2}, {0, 4}}, dst))
	require.Equal(t, "wxyz", string(dst))
	require.ErrorContains(t, f.ReadRanges("a", [][2]int{{0, 1}, {0, 4}}, dst[:2]), "narrower than a byte")
}

// failingReader ends or fails in the middle of the data, as a file does that is cut while it is read.
type failingReader struct {
	*bytes.Reader
	err error
}

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off >= 60 {
		return 0, r.err
	}
	return r.Reader.ReadAt(p, off)
}

func TestReadErrorsNameFileAndTensor(t *testing.T) {
	text := raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)
	disk := errors.New("input/output error")
	f, err := newFile(failingReader{bytes.NewReader(text), disk}, "f", int64(len(text)))
	require.NoError(t, err)
	err = f.ReadInto("a", 0, 8, make([]byte, 8))
	require.EqualError(t, err, "f: reading a: input/output error")
	require.ErrorIs(t, err, disk)
	require.NotErrorAs(t, err, new(*Error), "a disk that fails is no damaged checkpoint")
}

// FuzzHeader holds that any bytes give an error or a file whose tensors can all be read, and that such a
// file's tensors, written again, are read the same.
func FuzzHeader(f *testing.F) {
	python, err := os.ReadFile("testdata/types.safetensors")
	require.NoError(f, err)
	f.Add(python)
	f.Add(raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0,3],"data_offsets":[8,8]}}  `, 8))
	f.Add(raw(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}`, 8))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, '{'})
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := newFile(bytes.NewReader(data), "f", int64(len(data)))
		if err != nil {
			return
		}
		have := contents(t, file)
		head, placed, err := layout(file.Tensors(), file.Metadata())
		require.NoError(t, err)
		out := append(head, make([]byte, int64(len(data)))...)
		end := int64(len(head))
		for _, p := range placed {
			end = p.Offset + p.Bytes
			copy(out[p.Offset:], have[p.Name][len(p.DType):])
		}
		again, err := newFile(bytes.NewReader(out[:end]), "f", end)
		require.NoError(t, err)
		require.Equal(t, have, contents(t, again))
	})
}
