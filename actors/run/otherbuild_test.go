package run

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
)

// TestOtherBuild: a process whose build writes one number less in front of others is refused at its first
// connection, with the cause, and one of the same build is not.
func TestOtherBuild(t *testing.T) {
	t.Parallel()
	r := laidOut(t, 1, io.Discard)
	older := strings.Replace(core.Form(), " Gap:float64", "", 1)
	require.NotEqual(t, core.Form(), older)
	for _, x := range []struct {
		hash [32]byte
		lost string
	}{{r.hash(), ""}, {r.program(older), "with one build of lfactor"}} {
		dir, err := os.MkdirTemp("", "lf") // a socket's path may be at most 107 bytes
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		hashes, ends := [][32]byte{r.hash(), x.hash}, make([]*links.Links, 2)
		for proc := range ends {
			at, err := links.Unix(dir, proc)
			require.NoError(t, err)
			ends[proc] = links.New(at, proc, 0, hashes[proc], func(actors.Ref) int { return 0 })
		}
		lost := make(chan string, 9)
		ends[0].Lost = func(proc int, _ uint32, cause error) {
			require.Equal(t, 1, proc)
			lost <- cause.Error()
		}
		ends[0].Explain = func() []byte { return []byte("well") }
		ends[0].Serve(nil, actors.None)
		text, err := ends[1].Ask(0, time.Minute)
		if x.lost == "" {
			require.NoError(t, err)
			require.Equal(t, "well", string(text))
		} else {
			require.Error(t, err)
			require.Contains(t, <-lost, x.lost)
		}
		require.Empty(t, lost)
		for _, l := range ends {
			l.Close()
		}
	}
}
