package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

func open(t testing.TB, path string, o dataset.Options) dataset.Source {
	t.Helper()
	s, err := dataset.Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

type goldenSample struct {
	Key   string            `json:"key"`
	Parts map[string]string `json:"parts"`
}

func samplesOf(t *testing.T, s dataset.Source) (out []goldenSample) {
	for i := range s.Len() {
		d, err := s.Read(i)
		require.NoError(t, err)
		g := goldenSample{d.Key, map[string]string{}}
		for _, p := range d.Parts {
			sum := sha256.Sum256(p.Bytes)
			g.Parts[p.Name] = hex.EncodeToString(sum[:])[:16]
		}
		out = append(out, g)
	}
	return out
}
