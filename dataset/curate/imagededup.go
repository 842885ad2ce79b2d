package curate

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/lfactor/lfactor/dataset/media"
)

// image_dedup: images that look alike.
var _ = Register(Kind{Name: "image_dedup", Doc: "drops documents whose image looks like that of another one",
	Source:   "perceptual hashes of 64 bits, as imagehash 4.3 phash; documents without an image, or with several, stay",
	Settings: func() Settings { return &imageDedup{imageColumn: imageColumn{Column: usualImages}} }})

// imageDedup is its settings.
type imageDedup struct {
	imageColumn
	Distance int `yaml:"distance"` // bits that hashes of like images differ in at most
}

// imageDistanceMax is the largest distance: bands of 64/8 bits find those that are as near.
const imageDistanceMax = 7

func (s *imageDedup) Open() (Step, error) {
	if s.Distance < 0 || s.Distance > imageDistanceMax {
		return nil, &Fault{"distance", fmt.Sprintf("%d is not within 0 and %d", s.Distance, imageDistanceMax),
			"0 finds the same picture in other sizes, 4 most edits of one"}
	}
	return s, s.check()
}

func (s *imageDedup) Columns() Columns           { return Columns{Reads: []string{s.Column}} }
func (s *imageDedup) Drop(*Doc, []uint32) string { return "like_image" }

// Do implements Step.
func (s *imageDedup) Do(_ *Desk, d *Doc) string {
	if _, err := s.imagesOf(d); err != nil {
		return s.refuse(d, err)
	}
	return ""
}

// bandBytes is what stands for a band in a key, in front of the whole hash.
const bandBytes = 8

// Form is a bucket for each band: two hashes that differ in few bits agree in one of more bands than these.
func (s *imageDedup) Form() Form {
	f := Form{Buckets: s.Distance + 1, Bytes: 8, Clusters: true}
	if s.Distance > 0 {
		f.Bytes += bandBytes
		f.Prefix = bandBytes
		f.Near = func(a, b []byte) bool {
			return bits.OnesCount64(binary.BigEndian.Uint64(a)^binary.BigEndian.Uint64(b)) <= s.Distance
		}
	}
	return f
}

// Sign implements Stateful.
func (s *imageDedup) Sign(_ *Desk, d *Doc, emit func(int, uint32, []byte)) {
	list, err := s.imagesOf(d)
	if err != nil || len(list) != 1 {
		return
	}
	h, err := PHash(list[0])
	if err != nil {
		return // the size of what cannot be decoded is for image_size to judge
	}
	bands := s.Distance + 1
	for b := range bands {
		var key []byte
		if s.Distance > 0 {
			from, to := 64*b/bands, 64*(b+1)/bands
			band := h >> from
			if to-from < 64 {
				band &= 1<<(to-from) - 1
			}
			key = binary.BigEndian.AppendUint64(key, band)
		}
		emit(b, 0, binary.BigEndian.AppendUint64(key, h))
	}
}

// The sides of what a perceptual hash looks at: a picture of hashSide·4, and the lowest frequencies of it.
const hashSide = 8

// PHash is the perceptual hash of an image, as imagehash's phash has it: the signs of its 8×8 lowest
// frequencies about their median, row by row, the first in the highest bit.
func PHash(b []byte) (uint64, error) {
	p, err := media.Decode(b, media.Options{})
	if err != nil {
		return 0, err
	}
	for i := 0; i+2 < len(p.Pix); i += 3 { // Pillow's convert("L")
		v := byte((19595*int(p.Pix[i]) + 38470*int(p.Pix[i+1]) + 7471*int(p.Pix[i+2]) + 1<<15) >> 16)
		p.Pix[i], p.Pix[i+1], p.Pix[i+2] = v, v, v
	}
	const n = 4 * hashSide
	small := p.Resize(n, n, media.Lanczos)
	var grey [n][n]float64
	for y := range n {
		for x := range n {
			grey[y][x] = float64(small.Pix[3*(y*n+x)])
		}
	}
	low := lowest(&grey)
	sorted := slices.Clone(low[:])
	slices.Sort(sorted)
	median := (sorted[len(sorted)/2-1] + sorted[len(sorted)/2]) / 2
	h := uint64(0)
	for _, v := range low {
		h <<= 1
		if v > median {
			h |= 1
		}
	}
	return h, nil
}

// lowest is the lowest frequencies of a picture: a cosine transform of type II down the columns, then along the rows.
func lowest(grey *[4 * hashSide][4 * hashSide]float64) (out [hashSide * hashSide]float64) {
	const n = 4 * hashSide
	var wave [hashSide][n]float64
	for k := range hashSide {
		for i := range n {
			wave[k][i] = 2 * math.Cos(math.Pi*float64(k)*float64(2*i+1)/(2*n))
		}
	}
	var down [hashSide][n]float64
	for k := range hashSide {
		for x := range n {
			for y := range n {
				down[k][x] += wave[k][y] * grey[y][x]
			}
		}
	}
	for k := range hashSide {
		for l := range hashSide {
			for x := range n {
				out[k*hashSide+l] += wave[l][x] * down[k][x]
			}
			out[k*hashSide+l] = math.Round(out[k*hashSide+l]*(1<<20)) / (1 << 20) // noise of sums that are 0
		}
	}
	return out
}
