package torch

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// expected are the tensors that all files of testdata hold.
func expected(t testing.TB) *checkpoint.File {
	t.Helper()
	f, err := checkpoint.OpenFile("testdata/expected.safetensors")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// same compares two sources, in whole and in parts.
func same(t *testing.T, want, got checkpoint.Source) {
	t.Helper()
	a, b := want.Tensors(), got.Tensors()
	require.Len(t, b, len(a))
	rng := rand.New(rand.NewPCG(1, 1))
	for i, x := range a {
		require.Equal(t, x.Name, b[i].Name)
		require.Equal(t, x.DType, b[i].DType, x.Name)
		require.ElementsMatch(t, x.Shape, b[i].Shape)
		for k := range 12 {
			n, box := x.DType.Bits()/8, [][2]int{}
			for _, s := range x.Shape {
				from, to := 0, s
				if k > 0 {
					from = rng.IntN(s)
					to = from + rng.IntN(s-from+1)
				}
				box, n = append(box, [2]int{from, to}), n*(to-from)
			}
			p, q := make([]byte, n), make([]byte, n)
			require.NoError(t, want.ReadRanges(x.Name, box, p))
			require.NoError(t, got.ReadRanges(x.Name, box, q), x.Name)
			require.Equal(t, p, q, "%s %v", x.Name, box)
		}
	}
}

// TestReadsFiles: files that PyTorch has written hold the tensors that it has put there, views of larger
// storages and transposed ones too.
func TestReadsFiles(t *testing.T) {
	want := expected(t)
	for _, name := range []string{"plain.bin", "parameters.pt", "nested.pt", "views.pt", "shards"} {
		s, err := Open(filepath.Join("testdata", name))
		require.NoError(t, err, name)
		same(t, want, s)
		require.NoError(t, s.Close())
	}
}

// TestReadsDCP: directories of torch.distributed.checkpoint that 1 to 4 processes have written by rows, by
// columns, by both and with copies.
func TestReadsDCP(t *testing.T) {
	want := expected(t)
	for _, name := range []string{"dcp-one", "dcp-rows", "dcp-columns", "dcp-grid", "dcp-cached"} {
		d, err := OpenDCP(filepath.Join("testdata", name))
		require.NoError(t, err, name)
		require.Equal(t, []string{"step.n"}, d.Objects)
		same(t, want, d)
		require.NoError(t, d.Close())
	}
}

// TestWrites: what is written is read again; bench/golden/torch_files.py read DIR has PyTorch read the same.
func TestWrites(t *testing.T) {
	want, dir := expected(t), t.TempDir()
	if to := os.Getenv("LFACTOR_TORCH_DIR"); to != "" {
		dir = to
	}
	require.NoError(t, Write(nil, filepath.Join(dir, singleName), want))
	require.NoError(t, WriteDCP(nil, filepath.Join(dir, "dcp"), want))
	s, err := Open(dir)
	require.NoError(t, err)
	same(t, want, s)
	require.NoError(t, s.Close())
	d, err := OpenDCP(filepath.Join(dir, "dcp"))
	require.NoError(t, err)
	same(t, want, d)
	require.NoError(t, d.Close())
}

// TestSumsOfParts: the sums of an archive's entries are those of their bytes, of a tensor in several parts too.
func TestSumsOfParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), singleName)
	big := checkpoint.Info{Name: "big", DType: checkpoint.F32, Shape: []int{3, 1 << 20}, Bytes: 12 << 20}
	require.NoError(t, Write(nil, path, numbered{[]checkpoint.Info{big}}))
	z, err := zip.OpenReader(path)
	require.NoError(t, err)
	defer z.Close()
	require.Len(t, z.File, 5)
	for _, f := range z.File {
		r, err := f.Open()
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, r) // holds the sum
		require.NoError(t, err, f.Name)
	}
}

// numbered is a source of bytes that differ.
type numbered struct{ infos []checkpoint.Info }

func (n numbered) Tensors() []checkpoint.Info { return n.infos }
func (n numbered) Close() error               { return nil }
func (n numbered) ReadRanges(_ string, box [][2]int, dst []byte) error {
	for i := range dst {
		dst[i] = byte(i>>8*i + box[0][0] + box[1][0]>>4)
	}
	return nil
}

// TestNotRun: a pickle that would call something is refused by the name of that.
func TestNotRun(t *testing.T) {
	_, err := Open("testdata/evil.bin")
	var fault *checkpoint.Error
	require.True(t, errors.As(err, &fault), "%v", err)
	require.Equal(t, checkpoint.Unsafe, fault.Fault)
	require.ErrorContains(t, err, "posix.system")
}

// TestDamagedFiles: of files that are cut or changed none panics, and none gives more than it has.
func TestDamagedFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	found, tries := 0, 0
	for _, name := range []string{"plain.bin", "nested.pt", "views.pt", "dcp-grid"} {
		src, dir := filepath.Join("testdata", name), t.TempDir()
		file := name
		if strings.HasPrefix(name, "dcp") {
			require.NoError(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(src)))
			file, src = filepath.Join(name, MetadataName), filepath.Join(src, MetadataName)
		}
		b, err := os.ReadFile(src)
		require.NoError(t, err)
		for range 300 {
			x := bytes.Clone(b)
			switch n := rng.IntN(len(x)); rng.IntN(4) {
			case 0:
				x = x[:n]
			case 1:
				x = append(x[:n:n], b[min(len(b), n+1+rng.IntN(9)):]...)
			default:
				for range 1 + rng.IntN(3) {
					x[rng.IntN(len(x))] = byte(rng.IntN(256))
				}
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), x, 0o600))
			if tries++; damaged(t, filepath.Join(dir, name)) {
				found++
			}
		}
	}
	require.Greater(t, found, tries/4)
}

// damaged opens what is at a path, reads it, and reports whether a fault was found.
func damaged(t *testing.T, path string) bool {
	var s checkpoint.Source
	var err error
	if IsDCP(path) {
		s, err = OpenDCP(path)
	} else {
		s, err = Open(path)
	}
	if err != nil {
		var fault *checkpoint.Error
		require.True(t, errors.As(err, &fault), "%v", err)
		return true
	}
	defer s.Close()
	for _, x := range s.Tensors() {
		require.Less(t, x.Bytes, int64(1<<20), x.Name)
		box := make([][2]int, len(x.Shape))
		for i, n := range x.Shape {
			box[i] = [2]int{0, n}
		}
		if s.ReadRanges(x.Name, box, make([]byte, x.Bytes)) != nil {
			return true
		}
	}
	return false
}

// FuzzUnpickle: no bytes make the reader of pickles panic, or hold much more than they are.
func FuzzUnpickle(f *testing.F) {
	b, err := os.ReadFile("testdata/dcp-grid/.metadata")
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte("\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01u."))
	f.Add([]byte("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R."))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, _, _, err := unpickle(b); err == nil {
			d := &DCP{tensors: map[string]*sharded{}}
			_ = d.read(v) // any error will do
		}
	})
}

// TestBombs: values that hold one another many times over, lengths that are not there, compressed entries
// and views with more elements than their storage are refused, in no time and without their memory.
func TestBombs(t *testing.T) {
	laughs := []byte("\x80\x02)")
	for range 60 {
		laughs = append(laughs, '2', 0x86) // (x, x)
	}
	v, _, _, err := unpickle(append(laughs, '.'))
	require.NoError(t, err)
	require.Contains(t, show(v), "another kind")
	for want, p := range map[string]string{"1099511627776 bytes are to " +
		"follow": "\x80\x04\x8e\x00\x00\x00\x00\x00\x01\x00\x00.",
		"the stack is empty": "\x80\x02R.", "there is no mark": "\x80\x02t.",
		"operation 0x69":        "\x80\x02(ios\nsystem\n.",
		"nothing is remembered": "\x80\x02h\x07.", "keys and values": "\x80\x02N(NNu.",
		"protocol 9": "\x80\x09."} {
		_, _, _, err := unpickle([]byte(p))
		require.ErrorContains(t, err, want)
	}
	file := filepath.Join(t.TempDir(), "x.pt")
	archive := func(method uint16, shape, stride []int64) {
		p := &pickler{}
		p.op(0x80, 2, '}')
		p.text("x")
		p.call(global{"torch._utils", "_rebuild_tensor_v2"}, func() {
			p.op('(', '(')
			p.text("storage")
			p.global(global{"torch", "FloatStorage"})
			p.text("0")
			p.text("cpu")
			p.int(4)
			p.op('t', 'Q')
			p.int(0)
			p.ints(shape)
			p.ints(stride)
			p.op('t')
		})
		p.op('s', '.')
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for name, text := range map[string][]byte{"a/data.pkl": p.b, "a/data/0": make([]byte, 16)} {
			w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
			require.NoError(t, err)
			_, err = w.Write(text)
			require.NoError(t, err)
		}
		require.NoError(t, z.Close())
		require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
	}
	open := func() error {
		s, err := Open(file)
		if err == nil {
			require.NoError(t, s.Close())
		}
		return err
	}
	archive(zip.Store, []int64{2, 2}, []int64{2, 1})
	require.NoError(t, open())
	archive(zip.Deflate, []int64{2, 2}, []int64{2, 1})
	require.ErrorContains(t, open(), "is compressed")
	for _, x := range [][2][]int64{{{1 << 40}, {0}}, {{4, 2}, {1, 1}}, {{2, 2}, {3, 1}}, {{2}, {-1}},
		{{1 << 40, 1 << 40}, {0, 0}},
		{{2, 2}, {1}}} {
		archive(zip.Store, x[0], x[1])
		require.ErrorContains(t, open(), "tensor x: malformed", "%v", x)
	}
}
