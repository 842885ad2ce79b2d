package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ManifestName is the file of a step directory that lists the others.
const ManifestName = "manifest.json"

const sumName = "manifest.sha256"

const (
	manifestFormat   = 1 // raised when a reader of before would misread a manifest
	manifestBytesMax = 256 << 20
)

// Kinds of tensors in lfactor's own checkpoint. Others may be used: a kind is only a name.
const (
	Param    = "param"      // the weights as the model computes with them
	Master   = "master"     // float32 copies of weights kept in a narrower type
	ExpAvg   = "exp_avg"    // Adam's first moment
	ExpAvgSq = "exp_avg_sq" // Adam's second moment
	Momentum = "momentum"   // SGD's velocity
)

// Piece is the part of a logical tensor that one rank saves: the elements Flat of the box Box, both
// row-major. Tensor parallelism cuts boxes; ZeRO cuts flat ranges of what a rank has of a tensor.
type Piece struct {
	Name  string
	Kind  string
	DType DType
	Shape []int     // of the logical tensor
	Box   [][2]int  // nil: the whole tensor
	Flat  *[2]int64 // nil: the whole box
}

// Bytes is the size of the piece's data.
func (p Piece) Bytes() (int64, error) { return ByteSize(p.DType, p.storedShape()) }

// box is the part of the tensor that the piece covers; none given means all of it.
func (p Piece) box() [][2]int {
	if p.Box == nil {
		return Whole(p.Shape)
	}
	return p.Box
}

// storedShape is the shape under which the piece stands in its file.
func (p Piece) storedShape() []int {
	if p.Flat != nil {
		return []int{int(p.Flat[1] - p.Flat[0])}
	}
	return boxShape(p.box())
}

// key is the piece's name in its file.
func (p Piece) key() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s:%s", p.Kind, p.Name)
	if p.Box != nil {
		s.WriteByte('[')
		for i, r := range p.Box {
			if i > 0 {
				s.WriteByte(',')
			}
			fmt.Fprintf(&s, "%d:%d", r[0], r[1])
		}
		s.WriteByte(']')
	}
	if p.Flat != nil {
		fmt.Fprintf(&s, "(%d:%d)", p.Flat[0], p.Flat[1])
	}
	return s.String()
}

// Shard is a file of pieces, as WriteShard made it. It is a plain value: a rank in another process sends it
// to the one that commits.
type Shard struct {
	File   string  `json:"name"`
	Bytes  int64   `json:"bytes"`
	SHA256 string  `json:"sha256"`
	Pieces []Piece `json:"-"`
}

// manifest is manifest.json.
type manifest struct {
	Format   int                        `json:"format"`
	Step     int64                      `json:"step"`
	Tensors  []manifestTensor           `json:"tensors"`
	Files    []Shard                    `json:"files"`
	Sections map[string]json.RawMessage `json:"sections"`
}

// manifestTensor is a tensor of the manifest, with the pieces that cover it.
type manifestTensor struct {
	Name   string          `json:"name"`
	Kind   string          `json:"kind"`
	DType  DType           `json:"dtype"`
	Shape  []int           `json:"shape"`
	Pieces []manifestPiece `json:"pieces"`
}

// manifestPiece is a part of a tensor in one file: a box of it, or a range of the flattened elements.
type manifestPiece struct {
	File string    `json:"file"`
	Box  [][2]int  `json:"box,omitempty"`
	Flat *[2]int64 `json:"flat,omitempty"`
}

// piece is the inverse of newManifest's grouping.
func (t manifestTensor) piece(p manifestPiece) Piece {
	return Piece{Name: t.Name, Kind: t.Kind, DType: t.DType, Shape: t.Shape, Box: p.Box, Flat: p.Flat}
}

// newManifest groups the pieces of all shards by logical tensor and checks them.
func newManifest(step int64, shards []Shard, sections map[string]json.RawMessage) (*manifest, error) {
	m := &manifest{Format: manifestFormat, Step: step, Sections: sections}
	at := map[[2]string]int{}
	for _, s := range slices.SortedFunc(slices.Values(shards), func(a, b Shard) int {
		return strings.Compare(a.File, b.File)
	}) {
		m.Files = append(m.Files, s)
		for _, p := range s.Pieces {
			id := [2]string{p.Kind, p.Name}
			i, ok := at[id]
			if !ok {
				i = len(m.Tensors)
				at[id] = i
				m.Tensors = append(m.Tensors, manifestTensor{Name: p.Name, Kind: p.Kind, DType: p.DType,
					Shape: p.Shape})
			}
			t := &m.Tensors[i]
			if t.DType != p.DType || !slices.Equal(t.Shape, p.Shape) {
				return nil, fmt.Errorf("pieces of %s %s disagree: %s %v and %s %v", p.Kind, p.Name, t.DType,
					t.Shape, p.DType, p.Shape)
			}
			t.Pieces = append(t.Pieces, manifestPiece{File: s.File, Box: p.Box, Flat: p.Flat})
		}
	}
	slices.SortFunc(m.Tensors, func(a, b manifestTensor) int {
		return strings.Compare(a.Kind+"\x00"+a.Name, b.Kind+"\x00"+b.Name)
	})
	return m, m.check()
}

var localShardName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*\.safetensors$`)

// check says what is wrong with the manifest by itself: names, shapes, and that the pieces of each tensor
// cover it exactly once.
func (m *manifest) check() error {
	if m.Format != manifestFormat {
		return fmt.Errorf("format %d, this version reads %d", m.Format, manifestFormat)
	}
	files := map[string]bool{}
	var errs []error
	for _, f := range m.Files {
		if !localShardName.MatchString(f.File) || files[f.File] || f.Bytes < 0 {
			errs = append(errs, fmt.Errorf("file %q: bad name or size, or listed twice", f.File))
		}
		files[f.File] = true
	}
	seen := map[[2]string]bool{}
	for _, t := range m.Tensors {
		err := t.check(files)
		if id := [2]string{t.Kind, t.Name}; seen[id] {
			err = errors.New("listed twice")
		} else {
			seen[id] = true
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", t.Kind, quoteOdd(t.Name), err))
		}
	}
	return errors.Join(errs...)
}

// check holds the pieces to covering the tensor exactly once: boxes are equal or disjoint, the flat ranges
// of equal boxes are disjoint, and together they have as many elements as the tensor.
func (t manifestTensor) check(files map[string]bool) error {
	if t.DType.Bits()%8 != 0 || t.DType.Bits() == 0 {
		return fmt.Errorf("dtype %q cannot be cut into pieces", string(t.DType))
	}
	want, err := ByteSize(t.DType, t.Shape)
	if err != nil {
		return err
	}
	var have int64
	byBox := map[string][]Piece{}
	for _, p := range t.Pieces {
		if !files[p.File] {
			return fmt.Errorf("file %q is not listed", p.File)
		}
		piece := t.piece(p)
		n, err := piece.checkedBytes()
		if err != nil {
			return err
		}
		have += n
		key := fmt.Sprint(piece.box())
		byBox[key] = append(byBox[key], piece)
	}
	if have != want {
		return fmt.Errorf("the pieces have %d bytes, the tensor %d", have, want)
	}
	return checkDisjoint(byBox)
}

// checkedBytes is Bytes after holding box and flat range to the shape.
func (p Piece) checkedBytes() (int64, error) {
	n, err := BoxBytes(p.DType, p.Shape, p.box())
	if err != nil || p.Flat == nil {
		return n, err
	}
	elem := int64(p.DType.Bits() / 8)
	if p.Flat[0] < 0 || p.Flat[0] > p.Flat[1] || p.Flat[1] > n/elem {
		return 0, fmt.Errorf("flat range %v lies outside of the box's %d elements", *p.Flat, n/elem)
	}
	return (p.Flat[1] - p.Flat[0]) * elem, nil
}

// checkDisjoint checks that no element is in two pieces. Boxes must not overlap, and of pieces with
// the same box the flat ranges must not.
func checkDisjoint(byBox map[string][]Piece) error {
	keys := SortedKeys(byBox)
	for i, key := range keys {
		pieces := byBox[key]
		for _, other := range keys[:i] {
			if _, ok := intersect(pieces[0].box(), byBox[other][0].box()); ok {
				return fmt.Errorf("pieces %s and %s overlap", key, other)
			}
		}
		slices.SortFunc(pieces, func(a, b Piece) int { return sign(a.flat()[0] - b.flat()[0]) })
		for j := 1; j < len(pieces); j++ {
			if a, b := pieces[j-1].flat(), pieces[j].flat(); a[1] > b[0] && b[1] > b[0] {
				return fmt.Errorf("flat ranges %v and %v of %s overlap", a, b, key)
			}
		}
	}
	return nil
}

// flat is the piece's flat range, spelled out.
func (p Piece) flat() [2]int64 {
	if p.Flat != nil {
		return *p.Flat
	}
	n := int64(1)
	for _, s := range boxShape(p.box()) {
		n *= int64(s)
	}
	return [2]int64{0, n}
}

// encode is the manifest as indented JSON, which people can read too.
func (m *manifest) encode() []byte {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		panic(fmt.Sprintf("checkpoint: the manifest cannot be JSON: %v", err))
	}
	return append(text, '\n')
}

// parseManifest decodes and checks manifest.json; unknown keys are faults.
func parseManifest(text []byte) (*manifest, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	m := &manifest{}
	if err := d.Decode(m); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text after the JSON object")
	}
	return m, m.check()
}

// StepDir is the directory of a step below a checkpoint root.
func StepDir(root string, step int64) string { return filepath.Join(root, stepName(step)) }

func stepName(step int64) string { return fmt.Sprintf("step-%08d", step) }
