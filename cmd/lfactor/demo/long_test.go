package demo

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/trained"
)

// TestNeedles: a text has its needle once, farther from its end than two layers of windows reach, and every
// row of the data holds as many conversations as it has tokens for, longer and longer ones.
func TestNeedles(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		text, answer := needle(r, longTokens-64)
		require.Equal(t, 1, strings.Count(text, " key : "+answer+" ;"))
		_, behind, _ := strings.Cut(text, answer)
		require.Greater(t, len(strings.Fields(behind)), 3*256)
		require.Len(t, strings.Fields(text), longTokens-64+6+len(strings.Fields(needleWords)))
	}
	dir := t.TempDir()
	vocab, end, err := (&session{dir: dir}).longTokenizer()
	require.NoError(t, err)
	require.Greater(t, vocab, int(end))
	tok, _, err := trained.TokenizerAt(filepath.Join(dir, "tokenizer"))
	require.NoError(t, err)
	path := filepath.Join(dir, "a.jsonl")
	require.NoError(t, longData(path, 10, longShort, 8, 120))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	total, first, last := 0, 0, 0
	for s := bufio.NewScanner(f); s.Scan(); {
		var x struct{ Messages []turn }
		require.NoError(t, json.Unmarshal(s.Bytes(), &x))
		n := len(tok.Encode(x.Messages[0].Content+x.Messages[1].Content, false))
		require.Less(t, n, longShort-20, "a conversation and its marks have to fit into a row")
		if total == 0 {
			first = n
		}
		total, last = total+n, n
	}
	require.Less(t, first, 30)
	require.Greater(t, last, longShort/3)
	require.InEpsilon(t, 11*longShort, total, 0.5)
}

// TestChunkPeaks: smaller chunks take less memory, all of them more than the state.
func TestChunkPeaks(t *testing.T) {
	t.Parallel()
	peaks, err := (&session{}).chunkPeaks(1024)
	require.NoError(t, err)
	require.Len(t, peaks, 6)
	for i, p := range peaks {
		require.Equal(t, 1024>>i, p.Chunk)
		require.Equal(t, peaks[0].State, p.State)
		require.Greater(t, p.Peak, p.State)
		if i > 0 {
			require.LessOrEqual(t, p.Peak, peaks[i-1].Peak)
		}
	}
	require.Less(t, peaks[5].Peak-peaks[5].State, (peaks[0].Peak-peaks[0].State)/2)
	svg := drawChunks(peaks, 1024)
	require.Equal(t, 12, strings.Count(svg, "<rect x"))
	require.Contains(t, svg, ">1024</text>")
	require.Contains(t, svg, `height="220.0" fill="#9cc3ea"`)
}
