package emulate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// shapes is the operand of LDTILECFG for tiles of these rows and bytes of a row.
func shapes(l ...[2]int) (c [64]byte) {
	c[0] = 1
	for i, s := range l {
		c[48+i] = byte(s[0])
		binary.LittleEndian.PutUint16(c[16+2*i:], uint16(s[1]))
	}
	return c
}

// ram is memory from address 0 on.
type ram []byte

func (m ram) rows(address, stride uint64, rows, width int, f func(i int, row []byte)) error {
	for i := range rows {
		at := address + uint64(i)*stride
		if at+uint64(width) > uint64(len(m)) {
			return fmt.Errorf("#PF at %#x", at)
		}
		f(i, m[at:at+uint64(width)])
	}
	return nil
}

func (m ram) read(buf []byte, address, stride uint64, rows, width int) error {
	return m.rows(address, stride, rows, width, func(i int, row []byte) { copy(buf[i*width:], row) })
}

func (m ram) write(buf []byte, address, stride uint64, rows, width int) error {
	return m.rows(address, stride, rows, width, func(i int, row []byte) { copy(row, buf[i*width:]) })
}

// at is an operand at base register 0, with the stride in register 1.
func at(op opcode, tile int) instruction {
	return instruction{op: op, tile: tile, base: 0, index: 1, scale: 1, disp: 5}
}

// Loads and stores touch the configured part of a tile, with the index register as stride; the rest of a
// tile becomes 0.
func TestLoadAndStore(t *testing.T) {
	m := make(ram, 400)
	for i := range m {
		m[i] = byte(i)
	}
	var u unit
	r := registers{0: 20, 1: 15}
	c := shapes([2]int{16, 64}, [2]int{3, 12})
	require.NoError(t, u.configure(&c))
	u.data[1][2][3], u.data[1][3][0] = 1, 1 // cannot be, but would show that something is left
	require.NoError(t, u.execute(at(tileLoadD, 1), &r, m))
	for i, row := range u.data[1] {
		for j, w := range row {
			want := uint32(0)
			if i < 3 && j < 3 {
				want = binary.LittleEndian.Uint32(m[25+30*i+4*j:])
			}
			require.Equal(t, want, w, "word [%d,%d]", i, j)
		}
	}
	before := bytes.Clone(m)
	r[0], r[1] = 200, 10
	require.NoError(t, u.execute(at(tileStoreD, 1), &r, m))
	for i := range 3 {
		copy(before[205+20*i:], before[25+30*i:][:12])
	}
	require.Equal(t, before, []byte(m))
	require.ErrorContains(t, u.execute(at(tileLoadD, 0), &r, m), "#PF")
	require.NoError(t, u.execute(at(tileZero, 1), &r, m))
	require.Equal(t, tile{}, u.data[1])
}

// Configurations go in and out; loading one, of any palette, clears the tiles.
func TestConfiguration(t *testing.T) {
	m := make(ram, 500)
	r := registers{0: 10, 1: 20}
	c := shapes([2]int{16, 64}, [2]int{}, [2]int{3, 12}, [2]int{}, [2]int{}, [2]int{}, [2]int{}, [2]int{1, 1})
	copy(m[10+5+20*2:], c[:])
	var u unit
	require.NoError(t, u.execute(at(ldTileCfg, 0), &r, m))
	u.data[0][0][0] = 1
	r[0] = 100
	require.NoError(t, u.execute(at(stTileCfg, 0), &r, m))
	require.Equal(t, c[:], []byte(m[145:145+64]))
	require.NoError(t, u.execute(at(ldTileCfg, 0), &r, m))
	require.Zero(t, u.data[0][0][0])
	for _, in := range []instruction{at(ldTileCfg, 0), at(tileRelease, 0)} {
		u.data[0][0][0] = 1
		r[0] = 300
		require.NoError(t, u.execute(in, &r, m))
		require.Equal(t, unit{}, u)
		r[0] = 100
		require.NoError(t, u.execute(at(stTileCfg, 0), &r, m))
		require.Equal(t, make([]byte, 64), []byte(m[145:145+64]))
		require.NoError(t, u.configure(&c))
	}
}

// The product takes A from ModRM.rm and B from VEX.vvvv.
func TestProduct(t *testing.T) {
	var u unit
	c := shapes([2]int{2, 12}, [2]int{2, 4}, [2]int{1, 12})
	require.NoError(t, u.configure(&c))
	half := func(x float32) uint32 { return math.Float32bits(x) >> 16 }
	for i := range 2 {
		u.data[1][i][0] = half(float32(i+1)) | half(10)<<16
	}
	for j := range 3 {
		u.data[2][0][j] = half(float32(100*j)) | half(3)<<16
	}
	require.NoError(t, u.execute(instruction{op: tdpBF16PS, tile: 0, left: 1, right: 2}, &registers{}, nil))
	for i := range 2 {
		for j := range 4 {
			want := float32((i+1)*100*j + 30)
			if j == 3 {
				want = 0
			}
			require.Equal(t, want, math.Float32frombits(u.data[0][i][j]))
		}
	}
}

// What a processor refuses is an error, and changes nothing.
func TestRules(t *testing.T) {
	edit := func(i int, x byte) func(*[64]byte) { return func(c *[64]byte) { c[i] = x } }
	for want, f := range map[string]func(*[64]byte){
		"#GP: LDTILECFG of palette 2":                        edit(0, 2),
		"start_row 1":                                        edit(1, 1),
		"byte 2 = 1, which is reserved":                      edit(2, 1),
		"byte 15 = 1, which is reserved":                     edit(15, 1),
		"byte 32 = 64, which is reserved":                    edit(32, 64),
		"byte 47 = 64, which is reserved":                    edit(47, 64),
		"byte 56 = 16, which is reserved":                    edit(56, 16),
		"#GP: LDTILECFG of tile 7 with 17 rows of 64 bytes":  edit(55, 17),
		"#GP: LDTILECFG of tile 0 with 16 rows of 65 bytes":  edit(16, 65),
		"#GP: LDTILECFG of tile 7 with 16 rows of 320 bytes": edit(31, 1),
		"#GP: LDTILECFG of tile 3 with 0 rows of 64 bytes":   edit(51, 0),
		"#GP: LDTILECFG of tile 2 with 16 rows of 0 bytes":   edit(20, 0),
	} {
		all := shapes([2]int{16, 64}, [2]int{16, 64}, [2]int{16, 64}, [2]int{16, 64}, [2]int{16, 64},
			[2]int{16, 64}, [2]int{16, 64}, [2]int{16, 64})
		f(&all)
		u := unit{configured: true}
		require.ErrorContains(t, u.configure(&all), want)
		require.Equal(t, unit{configured: true}, u)
	}
	dot := func(c, a, b int) instruction { return instruction{op: tdpBF16PS, tile: c, left: a, right: b} }
	full := [2]int{16, 64}
	for _, c := range []struct {
		want   string
		in     instruction
		shapes [][2]int
	}{
		{"#UD: tile 0 is used, but none is configured", at(tileZero, 0), nil},
		{"used, but none is configured", dot(0, 1, 2), nil},
		{"#UD: tile 1 is used, but not configured", at(tileZero, 1), [][2]int{full}},
		{"#UD: tile 1 is used, but not configured", at(tileLoadD, 1), [][2]int{full}},
		{"#UD: tile 1 is used, but not configured", at(tileStoreD, 1), [][2]int{full}},
		{"#UD: tile 2 is used, but not configured", dot(0, 1, 2), [][2]int{full, full}},
		{"#UD: rows of tile 0 have 63 bytes", at(tileLoadD, 0), [][2]int{{16, 63}}},
		{"#UD: rows of tile 0 have 2 bytes", at(tileStoreD, 0), [][2]int{{16, 2}}},
		{"#UD: rows of tile 1 have 62 bytes", dot(0, 1, 2), [][2]int{full, {16, 62}, full}},
		{"#UD: TDPBF16PS of tiles 0, 0, 1", dot(0, 0, 1), [][2]int{full, full}},
		{"#UD: TDPBF16PS of tiles 0, 1, 0", dot(0, 1, 0), [][2]int{full, full}},
		{"#UD: TDPBF16PS of tiles 0, 1, 1", dot(0, 1, 1), [][2]int{full, full}},
		{"#UD: TDPBF16PS of 15×64 bytes += 16×64 · 16×64", dot(0, 1, 2), [][2]int{{15, 64}, full, full}},
		{"#UD: TDPBF16PS of 16×60 bytes += 16×64 · 16×64", dot(0, 1, 2), [][2]int{{16, 60}, full, full}},
		{"#UD: TDPBF16PS of 16×64 bytes += 16×32 · 16×64", dot(0, 1, 2), [][2]int{full, {16, 32}, full}},
		{"#UD: TDPBF16PS of 16×64 bytes += 16×64 · 8×64", dot(0, 1, 2), [][2]int{full, full, {8, 64}}},
	} {
		var u unit
		if c.shapes != nil {
			conf := shapes(c.shapes...)
			require.NoError(t, u.configure(&conf))
		}
		before := u
		require.ErrorContains(t, u.execute(c.in, &registers{}, make(ram, 4096)), c.want)
		require.Equal(t, before, u)
	}
}
