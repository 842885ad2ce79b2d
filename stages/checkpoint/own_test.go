package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// numbered is the data of a float32 tensor whose elements count from 0.
func numbered(shape []int) []byte {
	n := 1
	for _, s := range shape {
		n *= s
	}
	var out []byte
	for i := range n {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(i)))
	}
	return out
}

// cutBox is the plain definition of reading a box: one element at a time.
func cutBox(data []byte, shape []int, box [][2]int) []byte {
	var out []byte
	var walk func(axis, at int)
	walk = func(axis, at int) {
		if axis == len(shape) {
			out = append(out, data[at*4:at*4+4]...)
			return
		}
		for i := box[axis][0]; i < box[axis][1]; i++ {
			walk(axis+1, at*shape[axis]+i)
		}
	}
	walk(0, 0)
	return out
}

// cut splits a tensor into a grid of boxes with the given number of parts an axis, each box into flats flat ranges.
func cut(shape, parts []int, flats int) []Piece {
	boxes := [][][2]int{nil}
	for axis, n := range shape {
		var next [][][2]int
		for _, b := range boxes {
			for i := range parts[axis] {
				next = append(next, append(slices.Clone(b),
					[2]int{i * n / parts[axis], (i + 1) * n / parts[axis]}))
			}
		}
		boxes = next
	}
	var out []Piece
	for _, box := range boxes {
		p := Piece{Name: "w", Kind: Param, DType: F32, Shape: shape, Box: box}
		if flats == 1 {
			out = append(out, p)
			continue
		}
		n := p.flat()[1]
		for i := range int64(flats) {
			p.Flat = &[2]int64{i * n / int64(flats), (i + 1) * n / int64(flats)}
			out = append(out, p)
		}
	}
	return out
}

// pieceData is what a rank that owns p has in memory.
func pieceData(p Piece, data []byte) []byte {
	part := cutBox(data, p.Shape, p.box())
	return part[p.flat()[0]*4 : p.flat()[1]*4]
}

// TestAnyCutLoadsAnyCut saves tensors in many cuts, each piece in a file of its own, and reads random boxes back.
func TestAnyCutLoadsAnyCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i, c := range []struct{ shape, parts []int }{
		{[]int{12}, []int{1}}, {[]int{12}, []int{5}}, {[]int{6, 8}, []int{3, 1}}, {[]int{6, 8}, []int{1, 4}},
		{[]int{6, 8}, []int{2, 3}},
		{[]int{4, 6, 5}, []int{2, 3, 1}}, {[]int{4, 6, 5}, []int{1, 1, 5}},
		{[]int{2, 3, 4, 5}, []int{1, 2, 2, 1}}, {[]int{}, nil}, {[]int{3, 0}, []int{3, 1}},
	} {
		for flats := 1; flats < 4; flats++ {
			root := filepath.Join(t.TempDir(), fmt.Sprint(i, flats))
			save, err := Begin(quick, root, 7)
			require.NoError(t, err)
			data := numbered(c.shape)
			var shards []Shard
			for j, p := range cut(c.shape, c.parts, flats) {
				shard, err := save.WriteShard(fmt.Sprintf("p%d.safetensors", j), []Piece{p},
					func(int) ([]byte, error) { return pieceData(p, data), nil })
				require.NoError(t, err)
				shards = append(shards, shard)
			}
			require.NoError(t, save.Commit(shards...))
			r, err := Open(root)
			require.NoError(t, err)
			require.NoError(t, r.Verify())
			for range 20 {
				box := Whole(c.shape)
				for axis, n := range c.shape {
					lo := rng.IntN(n + 1)
					box[axis] = [2]int{lo, lo + rng.IntN(n-lo+1)}
				}
				want := cutBox(data, c.shape, box)
				got := make([]byte, len(want))
				require.NoError(t, r.ReadLogical("w", Param, box, got))
				require.Equal(t, want, append([]byte(nil), got...), "%v cut %v/%d, box %v", c.shape, c.parts,
					flats, box)
			}
			require.NoError(t, r.Close())
		}
	}
}

// TestWideStridesAndWindows reads columns of a tensor larger than one window.
func TestWideStridesAndWindows(t *testing.T) {
	shape := []int{300, 700} // 840,000 bytes, rows of 2,800
	data := numbered(shape)
	w, err := NewWriter(t.TempDir(), []Info{{Name: "w", DType: F32, Shape: shape}}, 0)
	require.NoError(t, err)
	for _, box := range [][][2]int{{{0, 300}, {0, 1}}, {{0, 150}, {1, 700}}, {{150, 300}, {1, 700}}} {
		require.NoError(t, w.WriteRanges("w", box, cutBox(data, shape, box)))
	}
	require.NoError(t, w.Commit())
	d, err := OpenDir(w.dir)
	require.NoError(t, err)
	defer d.Close()
	for _, box := range [][][2]int{{{0, 300}, {0, 350}}, {{0, 300}, {350, 700}}, {{0, 300}, {699, 700}},
		{{10, 290}, {5, 690}}, {{0, 300}, {0, 700}}, {{299, 300}, {0, 700}}} {
		want := cutBox(data, shape, box)
		got := make([]byte, len(want))
		require.NoError(t, d.ReadRanges("w", box, got))
		require.Equal(t, want, got, box)
	}
}

func TestCommitRefusesPiecesThatDoNotCover(t *testing.T) {
	p := func(lo, hi int) Piece {
		return Piece{Name: "w", Kind: Param, DType: F32, Shape: []int{4, 2}, Box: [][2]int{{lo, hi}, {0, 2}}}
	}
	flat := func(lo, hi int64) Piece {
		return Piece{Name: "w", Kind: Param, DType: F32, Shape: []int{4, 2}, Flat: &[2]int64{lo, hi}}
	}
	other := p(2, 4)
	other.DType = BF16
	for want, pieces := range map[string][]Piece{
		"the pieces have 16 bytes, the tensor 32": {p(0, 2)},
		"overlap":                         {p(0, 2), p(1, 3)},
		"flat ranges [0 5] and [4 7]":     {flat(0, 5), flat(4, 7)},
		"disagree: F32 [4 2] and BF16":    {p(0, 2), other},
		"outside of the box's 8 elements": {flat(0, 9)},
		"range [2,5) of axis 0":           {p(0, 2), p(2, 5)},
		"cannot be cut": {{Name: "w", Kind: Param, DType: "F4",
			Shape: []int{2}}},
		"1 ranges for a tensor with 2 axes": {{Name: "w", Kind: Param, DType: F32,
			Shape: []int{4, 2}, Box: [][2]int{{0, 4}}}},
		"the pieces have 64 bytes, the tensor 32":      {p(0, 4), p(0, 4)},
		"file \"../x.safetensors\": bad name":          nil,
		"letters, digits":                              {p(0, 4)},
		"param:w[0:4,0:2] has 4 bytes, want 32":        {p(0, 4)},
		"reading the device: the device went away":     {p(0, 4)},
		"tensor \"param:w[0:4,0:2]\": the name is tak": {p(0, 4), p(0, 4)},
	} {
		save, err := Begin(quick, t.TempDir(), 1)
		require.NoError(t, err)
		var shards []Shard
		switch {
		case strings.HasPrefix(want, "letters"):
			_, err = save.WriteShard("a/b.safetensors", pieces, nil)
		case strings.Contains(want, "../x"):
			err = save.Commit(Shard{File: "../x.safetensors"})
		case strings.Contains(want, "has 4 bytes"):
			_, err = save.WriteShard("a.safetensors", pieces, func(int) ([]byte, error) {
				return make([]byte, 4), nil
			})
		case strings.Contains(want, "went away"):
			_, err = save.WriteShard("a.safetensors", pieces, func(int) ([]byte, error) {
				return nil, fmt.Errorf("reading the device: the device went away")
			})
		case strings.Contains(want, "the name is tak"):
			want = "param:w[0:4,0:2]: the name is taken"
			_, err = save.WriteShard("a.safetensors", pieces, nil)
		default:
			for i, p := range pieces {
				shards = append(shards, Shard{File: fmt.Sprintf("s%d.safetensors", i), Pieces: []Piece{p}})
			}
			err = save.Commit(shards...)
		}
		require.ErrorContains(t, err, want)
	}
}

// fullCheckpoint saves a checkpoint with several kinds and a piece that the plan cut flat.
func fullCheckpoint(t *testing.T, root string, step int64) string {
	save, err := Begin(OS, root, step)
	require.NoError(t, err)
	shape := []int{8, 8}
	var pieces []Piece
	for _, kind := range []string{Param, Master, ExpAvg, ExpAvgSq} {
		for _, p := range cut(shape, []int{1, 2}, 2) {
			p.Kind = kind
			pieces = append(pieces, p)
		}
	}
	data := numbered(shape)
	shard, err := save.WriteShard("rank-00000.safetensors", pieces, func(i int) ([]byte, error) {
		return pieceData(pieces[i], data), nil
	})
	require.NoError(t, err)
	require.NoError(t, save.Section("config", map[string]string{"train.steps": "10"}))
	require.NoError(t, save.Commit(shard))
	return StepDir(root, step)
}

func TestReaderDescribesTheCheckpoint(t *testing.T) {
	root := t.TempDir()
	dir := fullCheckpoint(t, root, 12)
	r, err := Open(root)
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, dir, r.Path())
	require.Equal(t, []string{ExpAvg, ExpAvgSq, Master, Param}, r.Kinds())
	require.Equal(t, []Info{{Name: "w", DType: F32, Shape: []int{8, 8}, Bytes: 256}},
		r.Kind(Master).Tensors())
	require.Equal(t, numbered([]int{8, 8}), readAll(t, r.Kind(ExpAvg), r.Kind(ExpAvg).Tensors()[0]))
	one, ok := r.Info("w", Master)
	require.True(t, ok)
	require.Equal(t, r.Kind(Master).Tensors()[0], one)
	_, ok = r.Info("v", Master)
	require.False(t, ok)

	var e *Error
	require.ErrorAs(t, r.ReadLogical("v", Param, nil, nil), &e)
	require.Equal(t, Missing, e.Fault)
	require.ErrorContains(t, r.ReadLogical("w", Param, Whole([]int{8, 9}), nil), "range [0,9) of axis 1")
	require.ErrorContains(t, r.Section("rng", nil), `no section "rng"; there are config`)
	var wrong []int
	require.ErrorContains(t, r.Section("config", &wrong), "section config")
}

// TestFlippedBitsAreFound flips a bit in every fifth byte of a checkpoint, file by file, and cuts the files:
// Open or Verify must say so.
func TestFlippedBitsAreFound(t *testing.T) {
	root := t.TempDir()
	dir := fullCheckpoint(t, root, 1)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		for i := 0; i < len(good); i += 5 {
			bad := slices.Clone(good)
			bad[i] ^= 1 << (i % 8)
			require.NoError(t, os.WriteFile(path, bad, 0o644))
			err := openAndVerify(dir)
			require.Error(t, err, "%s byte %d", e.Name(), i)
			require.ErrorAs(t, err, new(*Error))
		}
		for _, size := range []int{0, 1, len(good) / 2, len(good) - 1} {
			require.NoError(t, os.WriteFile(path, good[:size], 0o644))
			require.ErrorAs(t, openAndVerify(dir), new(*Error), "%s cut to %d", e.Name(), size)
		}
		require.NoError(t, os.WriteFile(path, append(slices.Clone(good), 'x'), 0o644))
		require.ErrorAs(t, openAndVerify(dir), new(*Error), "%s with a byte more", e.Name())
		require.NoError(t, os.Remove(path))
		require.ErrorAs(t, openAndVerify(dir), new(*Error), "%s removed", e.Name())
		require.NoError(t, os.WriteFile(path, good, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note"), nil, 0o644))
	require.ErrorContains(t, openAndVerify(dir), "note: extra: the manifest does not list it")
}

func openAndVerify(dir string) error {
	r, err := openVerified(dir)
	if err == nil {
		r.Close()
	}
	return err
}

// FuzzManifest holds that any text is refused or describes tensors that are covered exactly once.
func FuzzManifest(f *testing.F) {
	m, err := newManifest(3,
		[]Shard{{File: "a.safetensors", Bytes: 9, Pieces: cut([]int{4, 4}, []int{2, 2}, 2)}}, nil)
	require.NoError(f, err)
	f.Add(m.encode())
	f.Add([]byte(`{"format":1,"tensors":[{"name":"a","kind":"param","dtype":"F32","shape":[9223372036854775807,2],"pieces":[]}]}`))
	f.Add([]byte(`{"format":1,"files":[{"name":"a.safetensors"}],"tensors":[{"name":"a","kind":"param","dtype":"F32","shape":[2],"pieces":[{"file":"a.safetensors","flat":[-1,1]}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err != nil {
			return
		}
		for _, tensor := range m.Tensors {
			n, err := ByteSize(tensor.DType, tensor.Shape)
			require.NoError(t, err)
			if n > 1<<12 || len(tensor.Shape) == 0 {
				continue
			}
			seen := make([]int, n/int64(tensor.DType.Bits()/8))
			for _, p := range tensor.Pieces {
				piece := tensor.piece(p)
				at := int64(0)
				_ = runs(piece.box(), piece.box(), Whole(tensor.Shape), func(r run) error {
					for i := range r.n {
						if at >= piece.flat()[0] && at < piece.flat()[1] {
							seen[r.dst+i]++
						}
						at++
					}
					return nil
				})
			}
			for _, n := range seen {
				require.Equal(t, 1, n)
			}
		}
	})
}
