package mcap

import (
	"bytes"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// topicsOf opens bytes and gives its topics by name.
func topicsOf(t *testing.T, b []byte) (*File, map[string]*Topic) {
	t.Helper()
	f, err := Open(bytes.NewReader(b), int64(len(b)), NewCache(1<<20))
	require.NoError(t, err)
	out := map[string]*Topic{}
	for _, x := range f.Topics() {
		out[x.Name] = x
	}
	return f, out
}

// TestMessages: values of every kind, at the places that CDR gives them, as the Python package reads what it wrote.
func TestMessages(t *testing.T) {
	b, err := os.ReadFile("../format/recordings/testdata/mcap/lz4.mcap")
	require.NoError(t, err)
	f, topics := topicsOf(t, b)
	require.Empty(t, f.held.held)
	mixed := topics["/mixed"]
	require.Equal(t, "test_msgs/msg/Mixed", mixed.Type)
	m, err := f.Message(mixed, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c", "d", "e", "f.x", "f.y", "g", "h"}, m.Names)
	require.Equal(t, map[string][]float64{"a": {-3}, "b": {-(1 << 40)}, "c": {1, 2, 65535}, "d": {0.5},
		"f.x": {-1, 2},
		"f.y": {0.25, -8, 3, 4}, "g": {1, 0, 1}, "h": {-2.75}}, m.Numbers)
	require.Equal(t, "nine", m.Texts["e"])
	require.Len(t, f.held.held, 1)
	require.True(t, m.Floats["d"])
	require.False(t, m.Floats["b"])
	joints := topics["/joint_states"]
	require.Len(t, joints.Times, 40)
	require.Equal(t, -1, joints.At(joints.Times[0]-1))
	require.Equal(t, 39, joints.At(math.MaxInt64))
	require.IsNonDecreasing(t, joints.Times)
}

// TestWriter: what it writes is read.
func TestWriter(t *testing.T) {
	w := NewWriter()
	w.Text("/a", 3, "words")
	w.Floats("/b", 5, []float64{1, -2.5})
	w.Floats("/b", 7, nil)
	f, topics := topicsOf(t, w.Close())
	m, err := f.Message(topics["/a"], 0)
	require.NoError(t, err)
	require.Equal(t, "words", m.Texts["data"])
	require.Equal(t, []int64{5, 7}, topics["/b"].Times)
	m, err = f.Message(topics["/b"], 0)
	require.NoError(t, err)
	require.Equal(t, []float64{1, -2.5}, m.Numbers["data"])
	m, err = f.Message(topics["/b"], 1)
	require.NoError(t, err)
	require.Empty(t, m.Numbers["data"])
}

// TestDefinitions: constants, defaults, bounds and names of other packages; what is none is refused.
func TestDefinitions(t *testing.T) {
	m, err := parse("p/msg/T", "int32 A=1\nstring B = \"x\" # no field\nfloat64[<=3] c\nstring<=5 d\nU[2] e\nq/msg/V f 3\n"+
		"\n=====\nMSG: p/U\nbool x\n=====\nMSG: q/V\nuint8[] y\n")
	require.NoError(t, err)
	require.Len(t, m.fields, 4)
	require.Equal(t, []int{anyValues, oneValue, 2, oneValue}, []int{m.fields[0].count, m.fields[1].count,
		m.fields[2].count, m.fields[3].count})
	for text, want := range map[string]string{"W x": `no type "p/W"`, "T x": "within 16 others",
		"int8[-1] x":       `"-1" values`,
		"int8[99999999] x": "values"} {
		_, err := parse("p/msg/T", text)
		require.ErrorContains(t, err, want, text)
	}
	plain, err := parse("p/msg/T", "float64 x")
	require.NoError(t, err)
	for b, want := range map[string]string{"": "plain CDR", "\x00\x03\x00\x00": "plain CDR",
		"\x00\x01\x00\x00abc": "ends within"} {
		_, err := plain.decode([]byte(b))
		require.ErrorContains(t, err, want)
	}
	got, err := plain.decode(append([]byte{0, 0, 0, 0}, 0x40, 0, 0, 0, 0, 0, 0, 0))
	require.NoError(t, err)
	require.Equal(t, []float64{2}, got.Numbers["x"])
}
