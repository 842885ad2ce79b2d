package format

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// Every sample type of LoongForge gives its conversations, its media where the marks are, and what is learnt.
func TestSampleTypes(t *testing.T) {
	turns := `[{"role":"user","content":"<image>a<image>"},{"role":"assistant","content":"b"}]`
	for _, c := range []struct {
		kind, json string
		files      []string
		want       string // tokens, or a part of the error
	}{
		{"multi_mix_qa", `{"texts":` + turns + `,"media":"image","name":["0_x.jpg","1_y.PNG"]}`,
			[]string{"0_x.jpg=12", "1_y.png=123"}, "(##)a(###)[b] image [{1 3}] image [{6 9}]"},
		{"multi_mix_qa", `{"texts":[{"from":"human","value":"q"},{"from":"gpt","value":"b"}],"media":"text"}`, nil, "q[b]"},
		{"multi_mix_qa", `{"texts":[{"from":"system","value":"s"},{"from":"human","value":"q"},{"from":"gpt","value":"b"}],"media":"image","name":["0_x.jpg"]}`, []string{"0_x.jpg=1"}, "s(#)q[b] image [{2 3}]"},
		{"multi_vid_vqa", `{"texts":[{"role":"user","content":"<video>q"},{"role":"assistant","content":"b"}],"media":"video","name":["0_x.mp4"]}`, []string{"0_x.mp4=1"}, "(#)q[b] video [{1 2}]"},
		{"chat_mix", `{"messages":[{"role":"user","content":[{"type":"text","text":"q"},{"type":"image"}]},{"role":"assistant","content":"b"}],"media":"image","name":["0_x.jpg"]}`, []string{"0_x.jpg=1"}, "q(#)[b] image [{2 3}]"},
		{"vqa", `[{"role":"user","content":"<image>q"},{"role":"assistant","content":"b"}]`,
			[]string{"jpg=1"}, "(#)q[b] image [{1 2}]"},
		{"caption", `{"captions":[{"content":"b"}]}`, []string{"jpg=1"}, "(#)[b] image [{1 2}]"},
		{"packed_vqa", `{"prompts":["p","q"],"captions":["a","b"],"images":["x","y"]}`,
			[]string{"img0.jpg=1", "img1.jpg=12"}, "(#)p[a] image [{1 2}] / (##)q[b] image [{1 3}]"},
		{"packed_captioning", `{"prompts":["p"],"captions":["a"],"images":["x"]}`, []string{"img0.jpg=1"},
			"(#)p[a] image [{1 2}]"},
		{"packed_multi_mix_qa", `{"texts":{"prompts":["<image>p","q"],"captions":["a",["b"]]},"media_files":[["x.jpg"],[]],"media_type":"image"}`, []string{"x.jpg=1"}, "(#)p[a] image [{1 2}] / q[b]"},
		{"packed_chat_mix", `{"messages":[{"messages":` + turns +
			`,"tools":null},{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"b"}]}],"media_files":[["x.jpg","y.jpg"]],"media_type":"image"}`, []string{"x.jpg=1", "y.jpg=1"}, "(#)a(#)[b] image [{1 2}] image [{5 6}] / q[b]"},
		{"multi_mix_qa", `{"texts":` + turns + `,"media":"image","name":["0_x.jpg"]}`, []string{"0_x.jpg=1"},
			"more marks <image> than the 1 files"},
		{"multi_mix_qa", `{"texts":[{"role":"user","content":"<image>"},{"role":"assistant","content":"b"}],"media":"image","name":["0_x.jpg","1_x.jpg"]}`, []string{"0_x.jpg=1", "1_x.jpg=1"}, "2 media and 1 marks"},
		{"multi_mix_qa", `{"texts":` + turns + `,"media":"image","name":["0_x.jpg","1_x.jpg"]}`,
			[]string{"0_x.jpg=1"}, `speaks of the file "1_x.jpg"`},
		{"multi_mix_qa", `{"texts":"no list"}`, nil, "no list of messages"},
		{"multi_mix_qa", `{"texts":[{"value":"q"}]}`, nil, "has no role"},
		{"multi_mix_qa", `{"texts":`, nil, "not JSON"},
		{"multi_mix_qa", `{"texts":` + turns + `,"media":"image","name":["0_x.jpg","1_y.jpg"]}`,
			[]string{"0_x.jpg=", "1_y.jpg=1"}, "it is empty"},
		{"packed_vqa", `{"prompts":["p"],"captions":["a","b"],"images":[]}`, nil, "1 prompts and 2 captions"},
	} {
		v := &VisionEncoder{SampleType: c.kind, Chat: formattest.Letters{}, Expander: formattest.PerByte{}}
		d := formattest.SampleOf(c.json, c.files...)
		got, err := v.EncodeSample(&d)
		if err != nil {
			require.ErrorContains(t, err, c.want, "%s %s", c.kind, c.json)
			continue
		}
		require.Equal(t, c.want, formattest.Show(got), "%s %s", c.kind, c.json)
		require.Equal(t, c.kind == "multi_vid_vqa", GuessSampleType(&d) == "multi_mix_qa" &&
			strings.Contains(c.json, "<video>"))
	}
}

// Images come out of the loader at the places of their tokens in the batch, packed and cut as texts are; a
// sample that would be cut within an image is quarantined.
func TestMediaInBatches(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.tar")
	w, err := CreateShard(path)
	require.NoError(t, err)
	for i := range 12 {
		d := formattest.SampleOf(fmt.Sprintf(`{"texts":[{"role":"user","content":"<image>%s"},{"role":"assistant","content":"yes"}],"media":"image","name":["0_x.jpg"]}`, strings.Repeat("q", i)),
			"0_x.jpg="+strings.Repeat("p", 3*i+1))
		require.NoError(t, w.Add(fmt.Sprintf("image_%d", i), d.Parts))
	}
	require.NoError(t, w.Close())
	l, err := dataset.OpenLoader(dataset.LoaderConfig{Sources: []dataset.Weighted{{Source: formattest.Open(t, path,
		dataset.Options{})}}, Mode: dataset.ModeSFT, SeqLen: 32,
		EOD: -1, MicroBatch: 2, GlobalBatch: 2, Passes: 1, KeepLast: true, Readers: 3,
		Budget:  dataset.Budget{Count: 4},
		Samples: &VisionEncoder{SampleType: "multi_mix_qa", Chat: formattest.Letters{}, Expander: formattest.PerByte{}}}, nil)
	require.NoError(t, err)
	defer l.Close()
	images := map[string]int{}
	for step := int64(0); ; step++ {
		batches, err := l.Step(step)
		if err != nil {
			break
		}
		for _, m := range batches[0].Media {
			n := 0
			for _, s := range m.Spans {
				for _, id := range batches[0].Tokens[s.From:s.To] {
					require.EqualValues(t, 7, id)
					n++
				}
			}
			require.Len(t, m.Bytes, n)
			images[m.Key] = n
		}
	}
	require.Len(t, images, 8, "twelve but three whose answer is cut off and one whose image would be")
	require.Len(t, l.Quarantined(), 1)
	require.Contains(t, l.Quarantined()[0].Reason, "would cut its media")
}

// FuzzConverse holds the readers of samples to an error or conversations whose parts match their media.
func FuzzConverse(f *testing.F) {
	for _, k := range SampleTypes() {
		f.Add(k.Name, `{"texts":[{"role":"user","content":"<image>a"}],"name":["a.jpg"],"media":"image"}`)
		f.Add(k.Name, `{"texts":{"prompts":["p"],"captions":["a"]},"media_files":[["a.jpg"]],"media_type":"image"}`)
		f.Add(k.Name, `[{"content":"x"}]`)
	}
	f.Fuzz(func(t *testing.T, kind, text string) {
		d := formattest.SampleOf(text, "a.jpg=1", "jpg=2", "img0.jpg=3")
		list, err := Converse(&d, kind, dataset.Tags{})
		if err != nil {
			return
		}
		for _, c := range list {
			n := 0
			for i := range c.Messages {
				parts, _ := partsOf(&c.Messages[i])
				for _, p := range parts {
					if p.kind != "" {
						n++
					}
				}
			}
			require.Equal(t, len(c.Media), n)
		}
	})
}
