package jobs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// packSource is a shard of conversations with none, one or two images, one of them broken and one too long.
func packSource(t *testing.T) dataset.Source {
	path := filepath.Join(t.TempDir(), "in.tar")
	w, err := format.CreateShard(path)
	require.NoError(t, err)
	for i := range 60 {
		marks, files, names := "", []string{}, []string{}
		for k := range i % 3 {
			marks += "<image>"
			names = append(names, fmt.Sprintf("%d_p.jpg", k))
			files = append(files, fmt.Sprintf("%d_p.jpg=%s", k, strings.Repeat("p", 1+i%7)))
		}
		if i == 11 {
			marks += "<image>"
		}
		text := strings.Repeat("q", 1+i*i%50)
		if i == 20 {
			text = strings.Repeat("q", 200)
		}
		media := map[bool]string{true: `"image","name":["` + strings.Join(names, `","`) + `"]`,
			false: `"text"`}[len(names) > 0]
		d := formattest.SampleOf(fmt.Sprintf(`{"texts":[{"role":"user","content":"%s%s"},`+
			`{"role":"assistant","content":"a%d"}],"media":%s}`, marks, text, i, media), files...)
		require.NoError(t, w.Add(fmt.Sprintf("k_%d", i), d.Parts))
	}
	require.NoError(t, w.Close())
	return open(t, path, dataset.Options{})
}

// Packed samples hold the tokens, losses and images of the samples they were made of, each once, within
// the row; the broken one and the one too long are listed. A run that was cut off goes on to the same bytes.
//
//lfvet:long a table of cases
func TestPackShards(t *testing.T) {
	src := packSource(t)
	v := &format.VisionEncoder{Chat: formattest.Letters{}, Expander: formattest.PerByte{}}
	want := map[string]int{}
	for i := range src.Len() {
		d, err := src.Read(i)
		require.NoError(t, err)
		if samples, err := v.EncodeSample(&d); err == nil && len(samples[0].Tokens) <= 128 {
			want[formattest.Show(samples)]++
		}
	}
	require.Greater(t, len(want), 40)
	for _, kind := range []string{"packed_chat_mix", "packed_multi_mix_qa"} {
		for _, algorithm := range []string{"best-fit-decreasing", "hashbucket"} {
			c := PackConfig{OutputDir: t.TempDir() + "/out", Source: src, Encoder: v, Algorithm: algorithm,
				Tokens: 128, PackedType: kind, MaxCount: 6, Workers: 2, Budget: dataset.Budget{Count: 1}}
			r, err := PackShards(context.Background(), c)
			require.NoError(t, err)
			require.EqualValues(t, 1, r.Bad)
			require.EqualValues(t, 1, r.Overlong)
			require.EqualValues(t, 58, r.Samples+r.Left, "%s %s %+v", kind, algorithm, r)
			require.Greater(t, r.Fill, .7)
			got := map[string]int{}
			packed := open(t, c.OutputDir, dataset.Options{})
			require.EqualValues(t, r.Packs, packed.Len())
			for i := range packed.Len() {
				d, err := packed.Read(i)
				require.NoError(t, err)
				samples, err := v.EncodeSample(&d)
				require.NoError(t, err)
				tokens := 0
				for _, s := range samples {
					tokens += len(s.Tokens)
					got[formattest.Show([]dataset.Sample{s})]++
				}
				require.LessOrEqual(t, tokens, 128)
			}
			if algorithm == "hashbucket" {
				continue
			}
			require.Equal(t, want, got)
			again := c
			again.OutputDir += "-again"
			for stop := int64(1); ; stop += 3 {
				ctx, cancel := context.WithCancel(context.Background())
				again.Progress = func(_ string, done, _ int64, _ []dataset.Stage) {
					if done >= stop {
						cancel()
					}
				}
				_, err := PackShards(ctx, again)
				cancel()
				if err == nil {
					break
				}
				require.ErrorIs(t, err, context.Canceled)
			}
			for i := range r.Shards {
				name := fmt.Sprintf("/pretrain-%d.tar", i)
				a, err := os.ReadFile(c.OutputDir + name)
				require.NoError(t, err)
				b, err := os.ReadFile(again.OutputDir + name)
				require.NoError(t, err)
				require.Equal(t, a, b, name)
			}
			again.Tokens = 99
			_, err = PackShards(context.Background(), again)
			require.ErrorContains(t, err, "other samples or settings")
		}
	}
}
