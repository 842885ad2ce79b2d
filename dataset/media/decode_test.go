package media

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type decoded struct {
	Size        [2]int
	RGB, Turned string
}

func goldenImages(t *testing.T) map[string]decoded {
	b, err := os.ReadFile("testdata/decode.json")
	require.NoError(t, err)
	var want map[string]decoded
	require.NoError(t, json.Unmarshal(b, &want))
	return want
}

func decodeFile(t *testing.T, name string, o Options) *Image {
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	p, err := Decode(b, o)
	require.NoError(t, err, name)
	return p
}

// Images without loss, of every mode, are bit for bit those of Pillow's convert("RGB").
func TestDecodeGolden(t *testing.T) {
	n := 0
	for name, want := range goldenImages(t) {
		p := decodeFile(t, name, Options{})
		require.Equal(t, want.Size, [2]int{p.W, p.H}, name)
		n++
		require.Equal(t, want.RGB, sha(p), name)
		turned := decodeFile(t, name, Options{Turn: true})
		require.Equal(t, want.Turned, sha(turned), name)
		for o, p := range map[Options]*Image{{}: p, {Turn: true}: turned} {
			w, h, err := Size(readFile(t, name), o)
			require.NoError(t, err, name)
			require.Equal(t, [2]int{p.W, p.H}, [2]int{w, h}, name)
		}
	}
	require.GreaterOrEqual(t, n, 12)
}

// Every orientation turns the same corner up.
func TestTurn(t *testing.T) {
	up := noise(5, 3)
	for k := 1; k <= 8; k++ {
		// turning back and forth by the inverse gives the image again
		inverse := []int{0, 1, 2, 3, 4, 5, 8, 7, 6}[k]
		require.Equal(t, up, up.turn(k).turn(inverse), k)
		require.Equal(t, k, Orientation(readFile(t, "turn"+string(rune('0'+k))+".jpg")))
	}
	require.Equal(t, []byte{7, 8, 9, 1, 2, 3, 10, 11, 12, 4, 5, 6},
		(&Image{2, 2, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}).turn(6).Pix)
}

func readFile(t testing.TB, name string) []byte {
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return b
}

// hugePNG announces a size and has nothing behind it.
func hugePNG(w, h uint32, depth, colour byte) []byte {
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d")
	body := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("IHDR"), w), h)
	body = append(body, depth, colour, 0, 0, 0)
	return append(binary.BigEndian.AppendUint32(append(b, body...), crc32.ChecksumIEEE(body)),
		make([]byte, 4000)...)
}

// edited is a file with a piece replaced.
func edited(t testing.TB, name, from, to string) []byte {
	b := readFile(t, name)
	require.Contains(t, string(b), from)
	return bytes.Replace(b, []byte(from), []byte(to), 1)
}

// Hostile images are refused with the cause before memory is taken for them.
func TestDecodeRefuses(t *testing.T) {
	webp := readFile(t, "lossless.webp")
	app := bytes.Repeat([]byte("\xff\xe1\xff\xff"+strings.Repeat("x", 65533)), 100)
	for want, b := range map[string][]byte{
		"60000×60000 pixels are over the limit of 89478485": hugePNG(60000, 60000, 8, 2),
		"PNG image of 4033 bytes: 6000×6000 pixels are":     hugePNG(6000, 6000, 8, 2),
		"1400×1400 pixels are more than can be in it":       hugePNG(1400, 1400, 16, 6),
		"9000×9000 pixels are more than can be in it":       hugePNG(9000, 9000, 1, 0),
		"it is 0×5 pixels": edited(t, "plain.gif", "\x25\x00\x17\x00",
			"\x00\x00\x05\x00"),
		"are no JPEG, PNG, GIF, WebP, BMP or TIFF": []byte("<svg/>"),
		"0 bytes that begin with \"\"":             nil,
		"JPEG image of 3 bytes":                    []byte("\xff\xd8\xff"),
		"GIF image of 1": edited(t, "plain.gif", "\x25\x00\x17\x00",
			"\xff\xff\xff\xff"),
		"3000×2000 pixels are more than": edited(t, "plain.gif", "\x25\x00\x17\x00",
			"\xb8\x0b\xd0\x07"),
		"16384×16384 pixels are over": append(bytes.Clone(webp[:21]),
			append([]byte("\xff\xff\xff\x0f"), webp[25:]...)...),
		"4096×4096 pixels are more than": append(bytes.Clone(webp[:21]),
			append([]byte("\xff\xcf\xff\x03"), webp[25:]...)...),
		"WebP data is malformed or cut off":    webp[:len(webp)/2],
		"the image is cut off":                 readFile(t, "p28.jpg")[:3000],
		"the kind of JPEG is neither baseline": edited(t, "p00.jpg", "\xff\xc0", "\xff\xc9"),
		"JPEG image of 6553702 bytes: the im":  append([]byte("\xff\xd8"), app...),
		"colour has no data": append(bytes.Clone(readFile(t,
			"p00.jpg")[:bytes.Index(readFile(t, "p00.jpg"), []byte("\xff\xda"))]), 0xff, 0xd9),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode(b, Options{})
		runtime.ReadMemStats(&after)
		require.ErrorContains(t, err, want)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20)+2*uint64(len(b)), want)
	}
	_, err := Decode(readFile(t, "rgb.png"), Options{PixelsMax: 37*23 - 1})
	require.ErrorContains(t, err, "37×23 pixels are over the limit of 850")
}

// What a file is called does not matter; what it begins with does.
func TestDecodeTells(t *testing.T) {
	for name, kind := range map[string]string{"rgb.png": "PNG", "p05.jpg": "JPEG", "lossy.webp": "WebP",
		"plain.gif": "GIF"} {
		b := readFile(t, name)
		_, err := Decode(b[:len(b)-len(b)/3], Options{})
		require.ErrorContains(t, err, fmt.Sprintf("%s image of %d bytes: ", kind, len(b)-len(b)/3))
	}
}

// fuzz decodes what a fuzzer makes of some files.
func fuzz(f *testing.F, pattern string) {
	files, err := filepath.Glob("testdata/" + pattern)
	require.NoError(f, err)
	for _, name := range files {
		if b := readFile(f, filepath.Base(name)); len(b) < 3000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := Decode(b, Options{PixelsMax: 1 << 16, Turn: true, White: len(b)%2 == 0}); err == nil {
			require.Len(t, p.Pix, p.W*p.H*3)
		}
	})
}

func FuzzJPEG(f *testing.F) { fuzz(f, "*.jpg") }

func FuzzPNG(f *testing.F) { fuzz(f, "*.png") }

func FuzzWebP(f *testing.F) { fuzz(f, "*.webp") }

func FuzzGIF(f *testing.F) { fuzz(f, "*.gif") }
