package media

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

const exactJPEG = true

type decoded struct {
	Size        [2]int
	RGB, Turned string
}

func goldenPictures(t *testing.T) map[string]decoded {
	b, err := os.ReadFile("testdata/decode.json")
	require.NoError(t, err)
	var want map[string]decoded
	require.NoError(t, json.Unmarshal(b, &want))
	return want
}

func decodeFile(t *testing.T, name string, o Options) *Picture {
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	p, err := Decode(b, o)
	require.NoError(t, err, name)
	return p
}

// Pictures without loss, of every mode, are bit for bit those of Pillow's convert("RGB").
func TestDecodeGolden(t *testing.T) {
	n := 0
	for name, want := range goldenPictures(t) {
		if filepath.Ext(name) == ".jpg" && !exactJPEG {
			continue
		}
		p := decodeFile(t, name, Options{})
		require.Equal(t, want.Size, [2]int{p.W, p.H}, name)
		n++
		require.Equal(t, want.RGB, sha(p), name)
		require.Equal(t, want.Turned, sha(decodeFile(t, name, Options{Turn: true})), name)
	}
	require.GreaterOrEqual(t, n, 12)
}

// Every orientation turns the same corner up.
func TestTurn(t *testing.T) {
	up := noise(5, 3)
	for k := 1; k <= 8; k++ {
		// turning back and forth by the inverse gives the picture again
		inverse := []int{0, 1, 2, 3, 4, 5, 8, 7, 6}[k]
		require.Equal(t, up, up.turn(k).turn(inverse), k)
		require.Equal(t, k, Orientation(readFile(t, "turn"+string(rune('0'+k))+".jpg")))
	}
	require.Equal(t, []byte{7, 8, 9, 1, 2, 3, 10, 11, 12, 4, 5, 6}, (&Picture{2, 2, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}).turn(6).Pix)
}

func readFile(t testing.TB, name string) []byte {
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return b
}

// hugePNG announces a size and has nothing behind it.
func hugePNG(w, h uint32) []byte {
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d")
	body := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("IHDR"), w), h)
	body = append(body, 8, 2, 0, 0, 0)
	return append(binary.BigEndian.AppendUint32(append(b, body...), crc32.ChecksumIEEE(body)), make([]byte, 4000)...)
}

// Hostile pictures are refused before memory is taken for them.
func TestDecodeRefuses(t *testing.T) {
	for want, b := range map[string][]byte{
		"60000×60000 pixels are over the limit":       hugePNG(60000, 60000),
		"6000×6000 pixels are more than can be in it": hugePNG(6000, 6000),
		"are no JPEG, PNG, GIF or WebP":               []byte("<svg/>"),
		"0 bytes that begin with \"\"":                nil,
		"JPEG picture of 3 bytes":                     []byte("\xff\xd8\xff"),
		"over the limit of 89478485":                  bytes.Replace(readFile(t, "plain.gif"), []byte("\x25\x00\x17\x00"), []byte("\xff\xff\xff\xff"), 1),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode(b, Options{})
		runtime.ReadMemStats(&after)
		require.ErrorContains(t, err, want)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	}
	_, err := Decode(readFile(t, "rgb.png"), Options{PixelsMax: 37*23 - 1})
	require.ErrorContains(t, err, "37×23 pixels are over the limit of 850")
}

func FuzzDecode(f *testing.F) {
	for _, n := range []string{"p00.jpg", "p01.jpg", "p02.jpg", "turn6.jpg", "grey16.png", "palette4.png", "plain.gif", "alpha.webp", "cmyk.jpg"} {
		f.Add(readFile(f, n))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := Decode(b, Options{PixelsMax: 1 << 16, Turn: true}); err == nil {
			require.Len(t, p.Pix, p.W*p.H*3)
		}
	})
}
