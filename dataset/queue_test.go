package dataset

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// gauge counts who is inside at once.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) during(work func()) {
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
	work()
	g.now.Add(-1)
}

type gaugedCoder struct {
	albumCoder
	g *gauge
}

func (c gaugedCoder) EncodeSample(d *Document) (s []Sample, err error) {
	c.g.during(func() { s, err = c.albumCoder.EncodeSample(d) })
	return s, err
}

// TestPoolsAreBounded: no stage works on more documents at once than it has workers, also one of a single
// worker behind a stage of several.
func TestPoolsAreBounded(t *testing.T) {
	for _, c := range [][3]int{{7, 1, 1}, {1, 1, 1}, {4, 3, 1}, {1, 1, 5}, {1, 4, 1}, {6, 2, 2}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			var encode, decode gauge
			spin := func(*Media, int) (v any, n int64, err error) {
				decode.during(func() {
					for i := range 2000 {
						v, n = i, n+int64(i&1)
					}
				})
				return v, 1, nil
			}
			cfg := LoaderConfig{Sources: []Weighted{{Source: &albums{letters{n: 240}}}}, Mode: ModeSFT,
				SeqLen: 32, EOD: -1, MicroBatch: 1, GlobalBatch: 4,
				Readers: c[0], Encoders: c[1], Decoders: c[2], Samples: gaugedCoder{g: &encode},
				Prepare: spin}
			l, err := OpenLoader(cfg, nil)
			require.NoError(t, err)
			defer l.Close()
			for step := range int64(100) {
				_, err := l.Step(step)
				require.NoError(t, err)
			}
			require.LessOrEqual(t, encode.most.Load(), int64(c[1]), "encoders at once")
			require.LessOrEqual(t, decode.most.Load(), int64(c[2]), "decoders at once")
		})
	}
}
