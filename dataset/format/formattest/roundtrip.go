package formattest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// Open opens data until the end of a test.
func Open(t testing.TB, path string, o dataset.Options) dataset.Source {
	t.Helper()
	s, err := dataset.Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// ReadAll reads every document, without its place, which it has to have.
func ReadAll(t testing.TB, s dataset.Source) (out []dataset.Document) {
	t.Helper()
	for i := range s.Len() {
		d, err := s.Read(i)
		require.NoError(t, err)
		require.NotEmpty(t, d.Place.File)
		d.Place = dataset.Place{}
		out = append(out, d)
	}
	return out
}

// RoundTrip checks that a format gives back what it wrote, named or recognised by itself, in any order, and tells changed
// data apart. It takes 23 documents of the format's kind.
func RoundTrip(t *testing.T, f dataset.Format, docs []dataset.Document) {
	path, o, err := f.Write(t.TempDir(), docs)
	require.NoError(t, err, f.Name)
	require.NotEmpty(t, f.Doc)
	var prints []string
	for _, name := range []string{f.Name, ""} {
		o.Format = name
		for _, o.IndexDir = range []string{"", t.TempDir()} {
			s := Open(t, path, o)
			require.Equal(t, f.Kind, s.Kind())
			require.Equal(t, docs, ReadAll(t, s), "%s, named %q", f.Name, name)
			for i := range s.Len() {
				d, err := s.Read(s.Len() - 1 - i)
				require.NoError(t, err)
				d.Place = dataset.Place{}
				require.Equal(t, docs[s.Len()-1-i], d)
			}
			requireSizes(t, s, docs)
			prints = append(prints, s.Fingerprint())
		}
	}
	other, o, err := f.Write(t.TempDir(), docs[:22])
	require.NoError(t, err)
	require.NotEqual(t, prints[0], Open(t, other, o).Fingerprint(), f.Name)
	require.Equal(t, []string{prints[0], prints[0], prints[0], prints[0]}, prints, f.Name)
}

// requireSizes checks the sizes that a source of texts or tokens knows of its documents: all do, since long
// documents are cut by them. Parts of tokens are those of the whole.
func requireSizes(t *testing.T, s dataset.Source, docs []dataset.Document) {
	t.Helper()
	if f := s.Kind().Form(); f != dataset.InText && f != dataset.InTokens {
		return
	}
	for from := range docs {
		sizes := make([]int64, len(docs)-from)
		require.NoError(t, s.(dataset.Sized).Sizes(int64(from), sizes), s.Name())
		for k, size := range sizes {
			d := docs[from+k]
			if s.Kind().Form() == dataset.InText {
				require.GreaterOrEqual(t, size, int64(len(d.Text)), s.Name())
				continue
			}
			require.Equal(t, int64(len(d.Tokens)), size, s.Name())
			for a := range size + 1 {
				part, err := s.(dataset.Parted).ReadPart(int64(from+k), a, max(a, min(size, 2*a)))
				require.NoError(t, err)
				require.Equal(t, append([]int32{}, d.Tokens[a:max(a, min(size, 2*a))]...),
					append([]int32{}, part.Tokens...))
			}
		}
	}
}
