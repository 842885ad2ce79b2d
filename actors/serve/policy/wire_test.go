package policy

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// message is one of bench/golden/openpi_messages.py.
func message(t testing.TB, name string) []byte {
	b, err := os.ReadFile(filepath.Join("testdata", name+".msgpack"))
	require.NoError(t, err)
	return b
}

// TestTypes: numbers of every type that NumPy writes are read.
func TestTypes(t *testing.T) {
	v, err := Unpack(message(t, "types"))
	require.NoError(t, err)
	m := v.(map[string]any)
	require.Len(t, m, 13)
	require.Equal(t, 1.5, m["scalar"])
	delete(m, "scalar")
	for name, v := range m {
		a := v.(Array)
		require.Equal(t, []int{4}, a.Shape, name)
		want := []float64{0, 1, 2, 100}
		if name == "b1" {
			want = []float64{0, 1, 1, 1}
		}
		require.Equal(t, want, a.Floats(), name)
	}
}

// TestHalves: numbers of sixteen bits at the edges of their kinds.
func TestHalves(t *testing.T) {
	for bits, want := range map[uint16]float64{0x0001: math.Ldexp(1, -24), 0x03ff: 1023 * math.Ldexp(1, -24),
		0x0400: math.Ldexp(1, -14), 0xbc00: -1, 0x7bff: 65504, 0xfc00: math.Inf(-1)} {
		require.Equal(t, want, half(bits), "%x", bits)
	}
	require.True(t, math.IsNaN(half(0x7e00)))
}

// TestReply: what the server writes has the bytes that openpi's client would write.
func TestReply(t *testing.T) {
	got := Pack(nil, []Pair{{"actions", FloatsOf([]float32{1, -2.5, 0.1, 4}, 2, 2)},
		{"server_timing", []Pair{{"infer_ms", 1.5}, {"batch", 3}}}, {"names", []string{"a", "b"}}, {"on",
			true},
		{"none", nil}, {"seed", 70000}})
	require.Equal(t, message(t, "reply"), got)
}

// TestObserve: observations as openpi's examples send them are read, nested or not.
func TestObserve(t *testing.T) {
	two := Keys{State: "state", Cameras: []string{"image", "wrist_image"}}
	read := func(name string, k Keys) *observation {
		v, err := Unpack(message(t, name))
		require.NoError(t, err)
		o, err := k.observe(v, "usual")
		require.NoError(t, err)
		return o
	}
	o := read("libero", two)
	require.Equal(t, "pick up the cup", o.seen.Task)
	require.Equal(t, []float64{0.5, -1.25, 3}, o.seen.State)
	require.Equal(t, []int{6, 4}, []int{o.seen.Views[0].W, o.seen.Views[0].H})
	require.NotEqual(t, o.seen.Views[0].Pix, o.seen.Views[1].Pix)
	require.False(t, o.seeded)

	o = read("aloha", Keys{State: "observation.state", Cameras: []string{"observation.images.cam_low",
		"observation.images.cam_high"}})
	require.Nil(t, o.seen.Views[0])
	v, err := Unpack(message(t, "aloha"))
	require.NoError(t, err)
	planes := v.(map[string]any)["images"].(map[string]any)["cam_high"].(Array)
	for i := range 24 { // channels first
		for c := range 3 {
			require.Equal(t, planes.Data[24*c+i], o.seen.Views[1].Pix[3*i+c])
		}
	}

	o = read("floats", two)
	require.Equal(t, []float64{1, 2.5, 1}, o.seen.State)
	require.Equal(t, "push", o.seen.Task)
	require.True(t, o.seeded)
	require.Equal(t, uint64(7), o.seen.Seed)
	require.Equal(t, &joining{2, 1}, o.join)
	v, err = Unpack(message(t, "floats"))
	require.NoError(t, err)
	for i, x := range v.(map[string]any)["observation"].(map[string]any)["image"].(Array).Floats() {
		require.Equal(t, byte(255*x), o.seen.Views[0].Pix[i])
	}
}

// TestObserveRefuses: what is wrong with an observation is said with its key.
func TestObserveRefuses(t *testing.T) {
	k := Keys{State: "observation.state", Cameras: []string{"observation.images.top"}}
	state, top := FloatsOf([]float32{1, 2}, 2), Array{DType: "|u1", Shape: []int{2, 2, 3}, Data: make([]byte,
		12)}
	whole := func(more ...any) map[string]any {
		m := map[string]any{"state": state, "images/top": top, "prompt": "go"}
		for i := 0; i < len(more); i += 2 {
			if m[more[i].(string)] = more[i+1]; more[i+1] == "gone" {
				delete(m, more[i].(string))
			}
		}
		return m
	}
	_, err := k.observe(whole(), "")
	require.NoError(t, err)
	all := k
	all.All = true
	_, err = all.observe(whole("images/top", "gone"), "")
	require.ErrorContains(t, err, "the policy reads all of its cameras")
	require.NotContains(t, err.Error(), "nil")
	for want, v := range map[string]any{
		"an observation is a map":         3.0,
		"state: the observation has none": whole("state", "gone"),
		"state: number 1 is NaN": whole("state", FloatsOf([]float32{1,
			float32(math.NaN())}, 2)),
		"state: an array of shape [1 2], want one axis": whole("state", FloatsOf([]float32{1, 2}, 1, 2)),
		"state: it is no array and no list":             whole("state", "x"),
		"state: number 0 is none":                       whole("state", []any{"x"}),
		"images/top: the observation has none":          whole("images/top", "gone"),
		"images/top: a camera's picture is an array":    whole("images/top", "x"),
		"images/top: an array of shape [2 2]": whole("images/top", Array{DType: "|u1",
			Shape: []int{2, 2}, Data: make([]byte, 4)}),
		"images/top: an array of <i4": whole("images/top", Array{DType: "<i4",
			Shape: []int{1, 1, 3}, Data: make([]byte, 12)}),
		"images/top: a picture of 0 by 2": whole("images/top", Array{DType: "|u1",
			Shape: []int{2, 0, 3}}),
		"images/top: pixel 1 is 1.5": whole("images/top", FloatsOf([]float32{0, 1.5, 0},
			1, 1, 3)),
		"prompt: the observation says no task":        whole("prompt", "gone"),
		"prompt: it is no text":                       whole("prompt", 3.0),
		"images/side: the policy reads no such thing": whole("images/side", top),
		"state comes twice":                           whole("observation.state", state),
		"seed: 0.5 is no whole number":                whole("seed", 0.5),
		"real_time_chunking: it is a map":             whole("real_time_chunking", 3.0),
		"real_time_chunking: delay: -1 is no": whole("real_time_chunking",
			map[string]any{"executed": 1.0, "delay": -1.0}),
	} {
		_, err := k.observe(v, "")
		require.ErrorContains(t, err, want)
	}
}

// TestObserveSteps: arrays with an axis more have the steps that a policy reads, the present one last.
func TestObserveSteps(t *testing.T) {
	k := Keys{State: "state", Cameras: []string{"top"}, Steps: 2}
	top := Array{DType: "|u1", Shape: []int{2, 1, 1, 3}, Data: []byte{1, 2, 3, 4, 5, 6}}
	m := func(state, top any) map[string]any {
		return map[string]any{"state": state, "top": top, "prompt": "go"}
	}
	o, err := k.observe(m(FloatsOf([]float32{1, 2, 3, 4}, 2, 2), top), "")
	require.NoError(t, err)
	require.Equal(t, []float64{3, 4}, o.seen.State)
	require.Equal(t, []byte{4, 5, 6}, o.seen.Views[0].Pix)
	require.Len(t, o.seen.Before, 1)
	require.Equal(t, []float64{1, 2}, o.seen.Before[0].State)
	require.Equal(t, []byte{1, 2, 3}, o.seen.Before[0].Views[0].Pix)
	_, err = k.observe(m(FloatsOf([]float32{1, 2}, 2), top), "")
	require.ErrorContains(t, err, "top: 2 steps, and 1 of the state")
	_, err = k.observe(m(FloatsOf([]float32{1, 2, 3}, 3, 1), top), "")
	require.ErrorContains(t, err, "state: 3 steps, and the policy reads 2")
}

// TestUnpackRefuses: half messages and messages that would take more than they have are refused.
func TestUnpackRefuses(t *testing.T) {
	whole := message(t, "libero")
	for n := range whole {
		_, err := Unpack(whole[:n])
		require.Error(t, err, n)
	}
	array := func(dtype string, data []byte, shape ...int) []byte {
		return Pack(nil, Array{DType: dtype, Shape: shape, Data: data})
	}
	deep := []byte{}
	for range 100000 {
		deep = append(deep, 0x91)
	}
	for want, b := range map[string][]byte{
		"1 bytes lie behind":    append(Pack(nil, "x"), 0),
		"in 0 bytes":            {0xdd, 0, 0, 0xff, 0xff},
		"a list of 4294967295":  {0xdd, 0xff, 0xff, 0xff, 0xff},
		"a map of 65535 keys":   {0xde, 0xff, 0xff},
		"deep":                  append(deep, 0),
		"comes twice":           {0x82, 0xa1, 'a', 1, 0xa1, 'a', 1},
		"little-endian":         array(">f4", make([]byte, 4), 1),
		"shape [2] has 4 bytes": array("<f4", make([]byte, 4), 2),
		"shape [2147483647": array("<f8", make([]byte, 8), 2147483647, 2147483647, 2147483647,
			2147483647),
		"shape has -1": array("<f4", nil, -1),
		"an array wants bytes": {0x81, 0xab, '_', '_', 'n', 'd', 'a', 'r', 'r', 'a', 'y', '_',
			'_', 0xc3},
		"a value of msgpack's type":       {0xd4, 1, 1},
		"a list of 65537 values in 70000": append([]byte{0xdd, 0, 1, 0, 1}, make([]byte, 70000)...),
	} {
		_, err := Unpack(b)
		require.ErrorContains(t, err, want)
	}
}

// FuzzUnpack: no bytes make the reader panic or take more than they have, and what it reads as arrays has the
// bytes that its shape says.
func FuzzUnpack(f *testing.F) {
	for _, name := range []string{"libero", "aloha", "floats", "types", "reply"} {
		f.Add(message(f, name))
	}
	k := Keys{State: "state", Cameras: []string{"image"}}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Unpack(b)
		if err != nil {
			return
		}
		var walk func(v any)
		walk = func(v any) {
			switch x := v.(type) {
			case map[string]any:
				for _, y := range x {
					walk(y)
				}
			case []any:
				for _, y := range x {
					walk(y)
				}
			case Array:
				n := sizeOf(x.DType)
				for _, s := range x.Shape {
					n *= s
				}
				require.Len(t, x.Data, n)
				require.Len(t, x.Floats(), n/sizeOf(x.DType))
			}
		}
		walk(v)
		if _, err := k.observe(v, ""); err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Fatal("an error without words")
		}
	})
}
