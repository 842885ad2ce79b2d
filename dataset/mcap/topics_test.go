package mcap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTopics: topics have the order of their channels, and channels of one topic are one, in order of time.
func TestTopics(t *testing.T) {
	w := NewWriter()
	var want []string
	for i := range 16 {
		name := fmt.Sprintf("/%c", 'p'-i)
		want = append(want, name)
		w.Floats(name, 5, []float64{1})
	}
	w.Floats("/p", 9, []float64{3})
	delete(w.channels, "/p") // so that another channel begins
	w.channels["/first"], w.channels["/second"] = 0, 0
	w.Floats("/p", 7, []float64{2})
	f, topics := topicsOf(t, w.Close())
	require.Len(t, f.topics, 17)
	var got []string
	for _, x := range f.Topics() {
		got = append(got, x.Name)
	}
	require.Equal(t, want, got)
	p := topics["/p"]
	require.Equal(t, []int64{5, 7, 9}, p.Times)
	for n := range 3 {
		m, err := f.Message(p, n)
		require.NoError(t, err)
		require.Equal(t, []float64{float64(n + 1)}, m.Numbers["data"])
	}
}

// TestCraftedDefinition: fields without values, of types within lists, are bounded as values are, and so are names.
func TestCraftedDefinition(t *testing.T) {
	var none, many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&none, "bool[0] x%d\n", i)
		fmt.Fprintf(&many, "V y%d\n", i)
	}
	for text, want := range map[string]string{
		"V[4194000] v\n=====\nMSG: p/V\n" + none.String():   "too many values",
		many.String() + "=====\nMSG: p/V\n" + none.String(): "over 65536 fields"} {
		m, err := parse("p/msg/T", text)
		require.NoError(t, err)
		_, err = m.decode([]byte{0, 1, 0, 0})
		require.ErrorContains(t, err, want)
	}
	_, err := parse("p/msg/T", "bool "+strings.Repeat("x", 300))
	require.ErrorContains(t, err, "over 256 bytes")
}

// TestCache: what is held is bounded for all files together, the chunks read last stay, and opening holds none.
func TestCache(t *testing.T) {
	c, a, b := NewCache(50), &File{}, &File{}
	for n := range int64(8) {
		c.put(a, n, make([]byte, 10))
	}
	require.NotNil(t, c.get(a, 3))
	require.Nil(t, c.get(a, 2))
	c.put(b, 3, make([]byte, 100))
	require.Len(t, c.held, heldLeast)
	require.EqualValues(t, 130, c.bytes)
	require.NotNil(t, c.get(a, 3)) // it was read lately
	require.Nil(t, c.get(a, 4))
	require.Len(t, c.get(b, 3), 100)
}
