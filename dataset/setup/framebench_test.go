package setup

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// TestFrameBench: with a chunk, recordings are read frame by frame, as often as asked for, with all their pictures.
func TestFrameBench(t *testing.T) {
	b := StreamBench{Readers: 1, Samples: 30, Options: dataset.Options{Horizon: 4}}
	r, err := b.Run(context.Background(), []string{"../format/recordings/testdata/rlds"}) // of 12 frames with two pictures
	require.NoError(t, err)
	require.Equal(t, [3]int64{30, 60, 0}, [3]int64{r.Samples, r.Images, r.Bad})
	b.Samples = 0
	r, err = b.Run(context.Background(), []string{"../format/recordings/testdata/rlds"})
	require.NoError(t, err)
	require.EqualValues(t, 12, r.Samples)
}
