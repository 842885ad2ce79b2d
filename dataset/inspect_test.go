package dataset

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInspectFindsWhatTrainingSetsAside: the documents that Inspect tells of are those that a pass quarantines,
// with the same reasons, for every kind of fault: of reading, of ids, of templates, and of media.
func TestInspectFindsWhatTrainingSetsAside(t *testing.T) {
	broken := func(m *memory) *memory { m.bad = map[int64]string{2: "it is broken"}; return m }
	ids := idSource("ids", 30, 40)
	ids.docs[4].Tokens = []int32{3, 1 << 20, 5}
	chats := chatSource("c", 30)
	chats.docs[5].Messages[0].Role = "fail"
	chats.docs[6].Messages = chats.docs[6].Messages[:1]
	chats.docs[7].Messages[1].Content = strings.Repeat("x", 100)
	album := func() LoaderConfig {
		prepare := func(m *Media, n int) (any, int64, error) {
			if m.Bytes[0]%7 == 3 {
				return nil, 0, errors.New("cut short")
			}
			return 1, 1, nil
		}
		return LoaderConfig{Sources: []Weighted{{Source: &albums{letters{n: 60}}}}, Mode: ModeSFT,
			SeqLen: 32, EOD: -1, MicroBatch: 1, GlobalBatch: 4, MediaMax: 1,
			Samples: albumCoder{}, Prepare: prepare, Vocab: 1000}
	}
	vocab := func(c LoaderConfig) LoaderConfig { c.Vocab, c.Pad = 100_000, 0; return c }
	texts := broken(sizedSource("s", 30))
	longer := func(m *memory) (n int64) { // than rows of 16, EOD included; document 4 of ids is not
		for i, d := range m.docs {
			if (len(d.Text) > 15 || len(d.Tokens) > 16) && m.bad[int64(i)] == "" {
				n++
			}
		}
		return n
	}
	for name, c := range map[string]struct {
		cfg      LoaderConfig
		long, un int64
	}{
		"texts":  {vocab(pretrain(Weighted{texts, 1})), longer(texts), 0},
		"tokens": {vocab(pretrain(Weighted{broken(ids), 1})), longer(ids), 0},
		"chats":  {vocab(sft(Weighted{broken(chats), 1})), 1, 1},
		"albums": {album(), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[int64]string{}
			run := c.cfg
			run.Budget, run.Passes, run.KeepLast = Budget{Fraction: 1}, 1, true
			l := open(t, run)
			for step := int64(0); ; step++ {
				if _, err := l.Step(step); err != nil {
					break
				}
			}
			for _, b := range l.Quarantined() {
				want[b.Document] = b.Reason
			}
			require.NotEmpty(t, want)
			got := map[int64]string{}
			in, err := Inspect(t.Context(), c.cfg, &byteEncoder{}, func(b Bad) { got[b.Document] = b.Reason })
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.EqualValues(t, len(got), in.Bad)
			require.Equal(t, c.cfg.Sources[0].Source.Len(), in.Documents)
			require.Equal(t, [2]int64{c.long, c.un}, [2]int64{in.Long, in.Unlearnt}, "%+v", in)
		})
	}
}
