package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// parts takes the sample's encoding apart: its metadata, its fields and the bytes of its body.
func parts(t *testing.T) (message, []field, []byte) {
	t.Helper()
	r := sample()
	b, _, _ := NewEncoder().Encode(r)
	m, err := parseMessage(b[3][8:])
	require.NoError(t, err)
	return m, r.fields(), flat(b[4:])
}

// read decodes such parts.
func read(m message, fs []field, body []byte) (*Record, error) {
	pool := tensor.NewPool("wire", 1<<26)
	r, err := NewDecoder(bytes.NewReader(body), pool).record(m, fs)
	if err != nil && pool.Buffers() != 0 {
		return r, fmt.Errorf("%d buffers stay behind: %w", pool.Buffers(), err)
	}
	return r, err
}

// TestMalformed alters one number of a record at a time: each is refused with what is wrong, nothing is read
// beyond the body, and no storage stays.
func TestMalformed(t *testing.T) {
	m, fs, body := parts(t)
	_, err := read(m, fs, body)
	require.NoError(t, err)
	fixed := len(columns) - 4
	values, text, fault, x := 2*fixed, 2*fixed+4, 2*fixed+7, 2*fixed+13 // first buffers
	node := fixed + 5                                                   // of the first tensor
	put := func(at span, i int, v uint32) func(m *message, body []byte) {
		return func(_ *message, body []byte) { binary.LittleEndian.PutUint32(body[int(at.off)+4*i:], v) }
	}
	for want, change := range map[string]func(m *message, body []byte){
		"34 nodes":   func(m *message, _ []byte) { m.nodes = append(m.nodes, 1) },
		"32 nodes":   func(m *message, _ []byte) { m.nodes = m.nodes[1:] },
		"68 buffers": func(m *message, _ []byte) { m.bufs = m.bufs[1:] },
		"body of -1 bytes": func(m *message, _ []byte) {
			m.body = -1
			for i := range m.bufs {
				m.bufs[i] = span{}
			}
		},
		fmt.Sprintf("body of %d bytes", maxBody+1): func(m *message, _ []byte) { m.body = maxBody + 1 },
		"buffer -64+1":                        func(m *message, _ []byte) { m.bufs[1] = span{-64, 1} },
		"buffer 64+-1":                        func(m *message, _ []byte) { m.bufs[1] = span{64, -1} },
		"buffer 8+1":                          func(m *message, _ []byte) { m.bufs[1] = span{8, 1} },
		fmt.Sprintf("buffer %d+1", m.body):    func(m *message, _ []byte) { m.bufs[1] = span{m.body, 1} },
		fmt.Sprintf("buffer %d+0", m.body+64): func(m *message, _ []byte) { m.bufs[1] = span{m.body + 64, 0} },
		"column 5 has 7 bytes":                func(m *message, _ []byte) { m.bufs[11].n = 7 },
		"column 0 has 0 bytes":                func(m *message, _ []byte) { m.bufs[1].n = 0 },
		"list of -1 elements":                 func(m *message, _ []byte) { m.nodes[fixed+1] = -1 },
		"list of 3 elements in 16 bytes":      func(m *message, _ []byte) { m.nodes[fixed+1] = 3 },
		"list of 1 elements in 16 bytes":      func(m *message, _ []byte) { m.nodes[fixed+1] = 1 },
		"list of 2 elements in 16 bytes":      func(m *message, _ []byte) { m.bufs[values+1].n = 7 },
		"list of 2 elements in 17 bytes": func(m *message, body []byte) {
			m.bufs[values+3].n = 17
			put(m.bufs[values+1], 0, 1)(m, body)
		},
		"text of 7 bytes": func(m *message, _ []byte) { m.bufs[text+1].n = 7 },
		"text of 6 bytes": func(m *message, _ []byte) { m.bufs[text+2].n = 6 },
		"text of 9 bytes": func(m *message, body []byte) { m.bufs[text+2].n = 9; put(m.bufs[text+1], 0, 1)(m, body) },
		"text of 8 bytes": func(m *message, body []byte) { put(m.bufs[fault+1], 1, 9)(m, body) },
		"dimension of -1": func(m *message, body []byte) {
			put(m.bufs[x+7], 0, 1<<32-1)(m, body)
			put(m.bufs[x+7], 1, 1<<32-1)(m, body)
		},
		"shape [2 4]":                    func(m *message, body []byte) { put(m.bufs[x+7], 2, 4)(m, body) },
		"shape [2]":                      func(m *message, body []byte) { m.nodes[node+3] = 1; put(m.bufs[x+5], 1, 1)(m, body) },
		"in 20 bytes":                    func(m *message, body []byte) { m.nodes[node+1] = 5; put(m.bufs[x+1], 1, 5)(m, body) },
		"unexpected EOF":                 func(m *message, _ []byte) { m.body += 64 },
		"list of 6 elements in 23 bytes": func(m *message, _ []byte) { m.bufs[x+3].n = 23 },
	} {
		a, b := m, bytes.Clone(body)
		a.nodes, a.bufs = slices.Clone(m.nodes), slices.Clone(m.bufs)
		change(&a, b)
		_, err := read(a, fs, b)
		require.ErrorContains(t, err, want, want)
		if err != io.ErrUnexpectedEOF {
			require.ErrorIs(t, err, ErrMalformed, want)
		}
		require.NotContains(t, err.Error(), "stay behind", want)
	}
	big := slices.Clone(body) // the product of dimensions is more than a body may have
	binary.LittleEndian.PutUint64(big[m.bufs[x+7].off:], 1<<40)
	binary.LittleEndian.PutUint64(big[m.bufs[x+7].off+8:], 1<<40)
	_, err = read(m, fs, big)
	require.ErrorContains(t, err, "dimension of 1099511627776")
}

// TestFrames: headers of frames that no encoder writes, streams that are opened twice or never, and more
// streams than an edge may have.
func TestFrames(t *testing.T) {
	decode := func(b []byte) error {
		_, err := NewDecoder(bytes.NewReader(b), tensor.NewPool("wire", 1<<26)).Decode()
		return err
	}
	good := encode(sample())
	for at, want := range map[int]string{0: "frame header", 8: "frame header", 4: "stream 0"} {
		b := bytes.Clone(good)
		b[at] ^= 1
		err := decode(b)
		if at == 4 { // the schema opens stream 1, the record is of stream 0
			want = "message type 3 on stream 0"
		}
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, ErrMalformed)
	}
	large := bytes.Clone(good)
	binary.LittleEndian.PutUint32(large[12:], maxMeta+1)
	require.ErrorContains(t, decode(large), "metadata of 16777217 bytes")
	binary.LittleEndian.PutUint32(large[12:], maxMeta)
	require.ErrorIs(t, decode(large), io.ErrUnexpectedEOF)
	require.ErrorIs(t, decode(good[:20]), io.ErrUnexpectedEOF)
	require.Equal(t, io.EOF, decode(nil))

	b, _, _ := NewEncoder().Encode(sample())
	schema := append(bytes.Clone(b[0]), b[1]...)
	require.ErrorContains(t, decode(append(bytes.Clone(schema), schema...)), "stream 0 opened twice")

	var many []byte
	for id := range uint32(1<<12 + 2) {
		many = append(append(many, frameHeader(id)...), b[1]...)
	}
	one := len(many) / (1<<12 + 2)
	require.Equal(t, io.EOF, decode(many[:(1<<12+1)*one]))
	require.ErrorContains(t, decode(many), "stream 4097 opened twice")
}

// TestSchemas: a tensor has up to eight dimensions, and a schema of another build is refused.
func TestSchemas(t *testing.T) {
	parse := func(fs []field) ([]field, error) { return parseSchema(schemaMessage(schemaOf(fs))) }
	for _, rank := range []int{0, 8} {
		fs, err := parse([]field{{"x", tensor.F32, rank}})
		require.NoError(t, err)
		require.Equal(t, []field{{"x", tensor.F32, rank}}, fs)
	}
	for _, rank := range []int{-1, 9} {
		_, err := parse([]field{{"x", tensor.F32, rank}})
		require.ErrorContains(t, err, "column x: bad lf.rank")
	}
	whole := schemaOf([]field{{"x", tensor.F32, 1}})
	md := whole.Metadata()
	other := arrow.MetadataFrom(map[string]string{"lf.schema": "message/0"})
	for want, s := range map[string]*arrow.Schema{
		`version "message/0"`:   arrow.NewSchema(whole.Fields(), &other),
		"schema has 19 columns": arrow.NewSchema(whole.Fields()[:19], &md),
		"schema has 21 columns": arrow.NewSchema(whole.Fields()[:21], &md),
		`column 0 is "from"`:    arrow.NewSchema(append(whole.Fields()[1:20:20], whole.Fields()[0]), &md),
		"column kind: dtype":    arrow.NewSchema(append(whole.Fields()[:20:20], whole.Fields()[:2]...), &md),
	} {
		_, err := parseSchema(schemaMessage(s))
		require.ErrorContains(t, err, want)
	}
}

// TestPinnedBytes: the bytes of an edge are part of what two processes agree on; Version changes with them.
func TestPinnedBytes(t *testing.T) {
	b := encode(sample(), sample())
	require.Equal(t, "10016 718e010183a5f64a", fmt.Sprintf("%d %.8x", len(b), sha256.Sum256(b)))
}
