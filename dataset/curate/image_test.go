package curate

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Hashes are imagehash's (bench/golden/phash.py).
func TestPHash(t *testing.T) {
	text, err := os.ReadFile("testdata/phash.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) < 50 {
		t.Fatalf("%d images", len(want))
	}
	for name, hash := range want {
		b, err := os.ReadFile(filepath.Join("../media/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		have, err := PHash(b)
		w, bad := strconv.ParseUint(hash, 16, 64)
		if err != nil || bad != nil || have != w {
			t.Errorf("%s: %016x, want %s (%d bits): %v %v", name, have, hash, bits.OnesCount64(have^w), err,
				bad)
		}
	}
}

// picture is a PNG of a size with a pattern that a number tells.
func picture(t *testing.T, w, h, n int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			u, v := 64*x/w, 64*y/h
			m.Set(x, y, color.RGBA{uint8(u * (n%7 + 1) * 3), uint8(v * (n%5 + 1) * 4), uint8(u * v * n),
				255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Images are found in all forms that columns have, and the sizes that they announce are judged.
func TestImageSize(t *testing.T) {
	dir := t.TempDir()
	b := picture(t, 40, 20, 3)
	if err := os.WriteFile(filepath.Join(dir, "a.png"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(b)
	for settings, want := range map[string]string{
		"min_side: 20": "", "min_side: 21": "small_image", "max_side: 40": "", "max_side: 39": "large_image",
		"min_pixels: 801": "small_image", "max_pixels: 799": "large_image",
		"max_aspect: 1.9": "oblong_image",
		"max_aspect: 2":   "", "min_images: 2, column: list": "",
		"min_images: 3, column: list": "too_few_images",
		"max_images: 1, column: list": "too_many_images", "min_images: 1, column: none": "too_few_images",
		"min_side: 1, column: out": "bad_image", "min_side: 1, column: gone": "missing_image",
		"min_side: 1, column: text": "bad_image", "min_side: 1, column: number": "bad_image",
		"min_side: 20, column: held": "", "min_side: 20, column: url": "", "min_side: 20, column: null": "",
	} {
		s, err := read(t, "image_size", "{"+settings+"}")
		if err != nil {
			t.Fatal(err)
		}
		d := &Doc{}
		d.Place.File = filepath.Join(dir, "data.jsonl")
		d.Set("image", "a.png")
		d.Set("list", []any{"a.png", map[string]string{"path": "a.png"}})
		d.Set("out", "../a.png")
		d.Set("gone", "b.png")
		d.Set("text", map[string]string{"bytes": base64.StdEncoding.EncodeToString([]byte("text"))})
		d.Set("number", 7)
		d.Set("held", map[string]string{"bytes": text})
		d.Set("url", "data:image/png;base64,"+text)
		d.Set("null", nil)
		if have := s.Do(NewDesk(), d); have != want {
			t.Errorf("%s: %q, want %q", settings, have, want)
		}
		if want == MissingImage && d.Detail != filepath.ToSlash(filepath.Join(dir, "b.png")) ||
			want == "bad_image" && d.Detail == "" {
			t.Errorf("%s: the ledger gets %q", settings, d.Detail)
		}
	}
	if _, err := read(t, "image_size", "{}"); err == nil {
		t.Error("no bound is taken")
	}
	if _, err := read(t, "image_dedup", "{distance: 8}"); err == nil {
		t.Error("a distance of 8 is taken")
	}
}

// Two hashes within the distance share a band in some bucket, for each distance and any bits that differ.
func TestImageBands(t *testing.T) {
	for distance := range imageDistanceMax + 1 {
		s := &imageDedup{imageColumn: imageColumn{Column: "image"}, Distance: distance}
		d := &Doc{}
		d.Set("image", map[string]string{"bytes": base64.StdEncoding.EncodeToString(picture(t, 50, 50, 4))})
		width := 0
		buckets := map[int]bool{}
		s.Sign(nil, d, func(bucket int, _ uint32, key []byte) {
			buckets[bucket] = true
			if len(key) != s.Form().Bytes {
				t.Errorf("distance %d: a key of %d bytes, want %d", distance, len(key), s.Form().Bytes)
			}
			width++
		})
		if len(buckets) != distance+1 || width != distance+1 || s.Form().Buckets != distance+1 {
			t.Errorf("distance %d: %d buckets", distance, len(buckets))
		}
		if near := s.Form().Near; near != nil {
			a, b := fmt.Appendf(nil, "%08d", 0), fmt.Appendf(nil, "%08d", 0)
			b[3] ^= 1<<distance - 1
			if !near(a, b) {
				t.Errorf("distance %d: %d bits are too many", distance, distance)
			}
			if b[4] ^= 1; near(a, b) {
				t.Errorf("distance %d: %d bits are near", distance, distance+1)
			}
		}
	}
}

// Bounds that nothing is within, and folders that are none, are told with their key.
func TestImageFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.png")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ step, settings, want string }{
		{"image_size", "min_side: -1", "min_side: -1 is below 0"},
		{"image_size", "max_pixels: -5", "max_pixels: -5 is below 0"},
		{"image_size", "min_images: 3, max_images: 2", "min_images: 3 is over max_images = 2"},
		{"image_size", "min_side: 9, max_side: 8", "min_side: 9 is over max_side = 8"},
		{"image_size", "max_aspect: 0.5", "max_aspect: 0.5 is no ratio"},
		{"image_size", "max_aspect: -2", "max_aspect: -2 is no ratio"},
		{"image_size", "max_aspect: .nan", "max_aspect: NaN is no ratio"},
		{"image_size", "max_aspect: .inf", "max_aspect: +Inf is no ratio"},
		{"image_size", "min_side: 1, folder: " + file + "x", "folder: stat "},
		{"image_size", "min_side: 1, folder: " + file, "folder: " + file + " is no folder"},
		{"image_dedup", "folder: " + file, "folder: " + file + " is no folder"},
		{"image_dedup", "folder: " + filepath.Dir(file), ""},
		{"image_size", "min_side: 8, max_side: 8, max_aspect: 1", ""},
	} {
		_, err := read(t, c.step, "{"+c.settings+"}")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(),
			c.want)) {
			t.Errorf("%s: %v, want %q", c.settings, err, c.want)
		}
	}
}

// A fingerprint follows the bytes and names of files and folders, and of large files the parts that are read.
func TestFingerprintOf(t *testing.T) {
	dir := t.TempDir()
	print := func() string {
		t.Helper()
		have, err := FingerprintOf(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		return have
	}
	seen := map[string]string{print(): "nothing"}
	small, large := filepath.Join(dir, "a"), filepath.Join(dir, "large")
	for _, c := range []struct {
		name   string
		change func() error
	}{
		{"a file", func() error { return os.WriteFile(small, []byte("1"), 0o600) }},
		{"other bytes", func() error { return os.WriteFile(small, []byte("2"), 0o600) }},
		{"another name", func() error { return os.Rename(small, small+"b") }},
		{"a large file", func() error {
			return errors.Join(os.WriteFile(large, nil, 0o600),
				os.Truncate(large, printWholeMax+10))
		}},
		{"its end", func() error { return poke(large, printWholeMax+9) }},
		{"its middle", func() error { return poke(large, printWholeMax/2+9) }},
		{"a folder", func() error { return os.CopyFS(filepath.Join(dir, "c"), os.DirFS("testdata")) }},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		have := print()
		if was, ok := seen[have]; ok {
			t.Errorf("%s: the fingerprint is that of %s", c.name, was)
		}
		seen[have] = c.name
	}
	if err := os.WriteFile(filepath.Join(dir, ".lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if seen[print()] != "a folder" {
		t.Error("a name that begins with a dot counts")
	}
	if _, err := FingerprintOf(filepath.Join(dir, "gone")); err == nil {
		t.Error("a file that is not there has a fingerprint")
	}
}

// poke changes a byte of a file.
func poke(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{1}, at)
	return errors.Join(err, f.Close())
}
