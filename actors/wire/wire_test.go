package wire

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
)

func sample() *Record {
	return &Record{Message: actors.Message{Kind: actors.Activation, From: 3, Epoch: 2, Step: -7,
		Action:  plan.Action{Kind: plan.F, Stage: 1, Chunk: 2, Micro: 9},
		Segment: 4, Comm: -1, Member: 5, Port: 6, Values: []float64{1.5, -2}, Text: "grüße"}, To: 8, Seq: 41,
		Code: 4, Fault: "no space", Stack: "goroutine 1", Payload: true,
		Names: []string{"x", "cu", "none"},
		Tensors: []*tensor.Tensor{tensor.Of(tensor.F32, []float32{1, 2, 3, 4, 5, 6}, 2, 3),
			tensor.Of(tensor.I32, []int32{0, 2}, 2), tensor.Of(tensor.BF16, []uint16{}, 0, 4)}}
}

func flat(b net.Buffers) []byte {
	var out []byte
	for _, x := range b {
		out = append(out, x...)
	}
	return out
}

func encode(rs ...*Record) []byte {
	e := NewEncoder()
	var out []byte
	for _, r := range rs {
		b, _, _ := e.Encode(r)
		out = append(out, flat(b)...)
	}
	return out
}

// TestRoundTrip: every field and tensor comes back, on streams of different schemas that share an edge, and
// no buffer stays.
func TestRoundTrip(t *testing.T) {
	plainMsg := &Record{Message: actors.Message{Kind: actors.Credit, From: 1, Values: []float64{1}}, To: 2,
		Seq: 42}
	pool := tensor.NewPool("wire", 0).Poison()
	d := NewDecoder(bytes.NewReader(encode(sample(), plainMsg, sample())), pool)
	for _, want := range []*Record{sample(), plainMsg, sample()} {
		got, err := d.Decode()
		require.NoError(t, err)
		require.Equal(t, want.Message, got.Message)
		require.Equal(t, [6]any{want.To, want.Seq, want.Code, want.Fault, want.Stack, want.Payload},
			[6]any{got.To, got.Seq, got.Code, got.Fault, got.Stack, got.Payload})
		require.Len(t, got.Tensors, len(want.Tensors))
		for i, x := range want.Tensors {
			require.Equal(t, want.Names[i], got.Names[i])
			require.Equal(t, x.String(), got.Tensors[i].String())
			require.True(t, bytes.Equal(x.Bytes(), got.Tensors[i].Bytes()))
			got.Tensors[i].Release()
		}
	}
	_, err := d.Decode()
	require.Equal(t, io.EOF, err)
	require.Zero(t, pool.Buffers())
}

// TestStockReader: the Arrow library reads a captured stream; its bytes are the edge's without the frame headers.
func TestStockReader(t *testing.T) {
	e := NewEncoder()
	var file bytes.Buffer
	for range 2 {
		b, _, first := e.Encode(sample())
		if first {
			file.Write(b[1])
			b = b[2:]
		}
		file.Write(flat(b[1:]))
	}
	r, err := ipc.NewReader(&file)
	require.NoError(t, err)
	defer r.Release()
	rows := 0
	for r.Next() {
		rec := r.Record()
		rows++
		i := rec.Schema().FieldIndices("x")[0]
		require.Equal(t, "[[1 2 3 4 5 6]]", rec.Column(i).(*array.List).String())
		require.Equal(t, "[[2 3]]", rec.Column(i+1).(*array.List).String())
		require.Equal(t, int64(-7), rec.Column(rec.Schema().FieldIndices("step")[0]).(*array.Int64).Value(0))
	}
	require.NoError(t, r.Err())
	require.Equal(t, 2, rows)
}

// FuzzDecode: whatever the bytes, an error or records come back, and no storage is lost.
func FuzzDecode(f *testing.F) {
	good := encode(sample())
	f.Add(good)
	f.Add(good[:len(good)-5])
	for _, at := range []int{9, 20, 700, len(good) - 300} {
		b := bytes.Clone(good)
		b[at] ^= 0x40
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		pool := tensor.NewPool("wire", 1<<26)
		d := NewDecoder(bytes.NewReader(b), pool)
		for {
			r, err := d.Decode()
			if err != nil {
				break
			}
			for _, x := range r.Tensors {
				x.Release()
			}
		}
		require.Zero(t, pool.Buffers())
	})
}
