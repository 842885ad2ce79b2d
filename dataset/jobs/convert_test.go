package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

const convertDir = "testdata/convert"

// What Python's webdataset makes of annotations by LoongForge's rules is what Convert makes of them:
// the same samples in the same shards, bit for bit. bench/golden/webdataset_convert.py has Energon read ours too.
func TestConvertGolden(t *testing.T) {
	b, err := os.ReadFile(convertDir + "/read.json")
	require.NoError(t, err)
	var golden map[string]struct {
		Options struct {
			JSONFile   string `json:"json_file"`
			Media      string `json:"media"`
			SampleType string `json:"sample_type"`
			MaxCount   int64  `json:"maxcount"`
			MaxSize    int64  `json:"maxsize"`
			Messages   string `json:"columns_messages"`
		} `json:"options"`
		Shards [][]goldenSample `json:"shards"`
	}
	require.NoError(t, json.Unmarshal(b, &golden))
	require.Len(t, golden, 4)
	for name, g := range golden {
		o := g.Options
		out := filepath.Join(t.TempDir(), "out")
		r, err := Convert(context.Background(), ConvertConfig{OutputDir: out,
			AnnotationOptions: format.AnnotationOptions{
				JSONFile: filepath.Join(convertDir, o.JSONFile), ImageDir: convertDir + "/images",
				VideoDir: convertDir + "/videos",
				Media:    o.Media, SampleType: o.SampleType, MaxCount: o.MaxCount, MaxSize: o.MaxSize,
				Messages: o.Messages}})
		require.NoError(t, err)
		require.Equal(t, len(g.Shards), r.Shards, name)
		for i, want := range g.Shards {
			require.Equal(t, want, samplesOf(t, open(t, fmt.Sprintf("%s/pretrain-%d.tar", out, i),
				dataset.Options{})), "%s shard %d", name, i)
		}
		e, err := format.ReadEnergon(out)
		require.NoError(t, err)
		counts, err := e.Count()
		require.NoError(t, err)
		require.Equal(t, e.Counts, counts)
	}
}

// annotations writes entries and a folder of one image.
func annotations(t *testing.T, entries ...string) ConvertConfig {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/img", 0o700))
	require.NoError(t, os.WriteFile(dir+"/img/a.jpg", []byte("image"), 0o600))
	require.NoError(t, os.WriteFile(dir+"/img/empty.jpg", nil, 0o600))
	require.NoError(t, os.WriteFile(dir+"/img/large.jpg", make([]byte, 2000), 0o600))
	require.NoError(t, os.WriteFile(dir+"/secret.jpg", []byte("secret"), 0o600))
	require.NoError(t, os.WriteFile(dir+"/a.jsonl", []byte(strings.Join(entries, "\n")), 0o600))
	return ConvertConfig{OutputDir: dir + "/out", Budget: dataset.Budget{Count: 100},
		AnnotationOptions: format.AnnotationOptions{JSONFile: dir + "/a.jsonl", ImageDir: dir + "/img",
			SampleType: "multi_mix_qa", MediaBytesMax: 1000}}
}

func entryText(question, rest string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q},{"role":"assistant","content":"yes"}]%s}`,
		question, rest)
}

// Every kind of unusable entry is set aside with its place and reason, and the rest is converted.
func TestConvertBad(t *testing.T) {
	good := entryText("<image>q", `,"image":"a.jpg"`)
	cases := []struct{ entry, want string }{
		{entryText("<image>q", `,"image":"../secret.jpg"`), "leads out of --image_dir"},
		{entryText("<image>q", `,"image":"/etc/passwd"`), "leads out of --image_dir"},
		{entryText("<image>q", `,"image":"missing.jpg"`), "no such file"},
		{entryText("<image>q", `,"image":"empty.jpg"`), "it is empty"},
		{entryText("<image>q", `,"image":"large.jpg"`), "over the limit of 1000"},
		{entryText("<image>q", `,"image":"."`), "it is not a file"},
		{entryText("<image><image>", `,"image":"a.jpg"`), "more marks <image> than the 1 files"},
		{entryText("<image>", `,"images":["a.jpg","a.jpg"]`), "2 media and 1 marks"},
		{entryText("<image>", ``), "more marks <image> than the 0 files"},
		{entryText("<video>q", `,"video":"a.mp4"`), "no --video_dir is given"},
		{entryText("<image>q", `,"image":7`), "no path and no list of paths"},
		{`{"texts":[]}`, `no key "messages"`},
		{`{"messages":"text"}`, "no list of messages"},
		{`{"messages":`, "not JSON"},
		{`[1]`, "not a JSON object"},
	}
	entries := []string{good}
	for _, c := range cases {
		entries = append(entries, c.entry, good)
	}
	conf := annotations(t, entries...)
	r, err := Convert(context.Background(), conf)
	require.NoError(t, err)
	require.EqualValues(t, len(cases), r.Bad)
	require.EqualValues(t, len(cases)+1, r.Samples)
	list, err := dataset.ReadQuarantine(conf.OutputDir + "/quarantine.jsonl")
	require.NoError(t, err)
	require.Len(t, list, len(cases))
	for i, c := range cases {
		require.Contains(t, list[i].Reason, c.want, c.entry)
		require.EqualValues(t, 2*i+1, list[i].Document)
	}
	conf.OutputDir += "2"
	conf.Budget.Count = 3
	_, err = Convert(context.Background(), conf)
	var spent *dataset.BudgetError
	require.ErrorAs(t, err, &spent)
	require.EqualValues(t, 4, spent.Bad)
}

// A conversion that was cut off at any moment goes on to the same bytes; with other settings it is refused.
func TestConvertResume(t *testing.T) {
	var entries []string
	for i := range 40 {
		entries = append(entries, entryText("<image>"+strings.Repeat("q", i), `,"image":"a.jpg"`))
		if i%9 == 0 {
			entries = append(entries, entryText("<image>q", `,"image":"missing.jpg"`))
		}
	}
	conf := annotations(t, entries...)
	conf.MaxCount = 7
	want := conf
	want.OutputDir += "-whole"
	whole, err := Convert(context.Background(), want)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	for {
		ctx, cancel := context.WithCancel(context.Background())
		left := 1 + rng.IntN(11)
		c := conf
		c.Progress = func(ConvertReport) {
			if left--; left == 0 {
				cancel()
			}
		}
		r, err := Convert(ctx, c)
		cancel()
		if err == nil {
			require.Equal(t, whole.Samples, r.Samples)
			require.Equal(t, whole.Bad, r.Bad)
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, os.WriteFile(conf.OutputDir+"/pretrain-9.tar.partial",
			[]byte("left by a kill"), 0o600))
	}
	names, err := filepath.Glob(want.OutputDir + "/*")
	require.NoError(t, err)
	meta, err := filepath.Glob(want.OutputDir + "/.nv-meta/*")
	require.NoError(t, err)
	for _, n := range append(names, meta...) {
		if info, err := os.Stat(n); err != nil || info.IsDir() {
			continue
		}
		a, err := os.ReadFile(n)
		require.NoError(t, err)
		b, err := os.ReadFile(strings.Replace(n, want.OutputDir, conf.OutputDir, 1))
		require.NoError(t, err)
		require.Equal(t, string(a), string(b), n)
	}
	conf.MaxCount = 8
	_, err = Convert(context.Background(), conf)
	require.ErrorContains(t, err, "other annotations or settings")
	conf.OutputDir = filepath.Dir(conf.JSONFile) + "/img"
	require.NoError(t, os.WriteFile(conf.OutputDir+"/x.tar", nil, 0o600))
	_, err = Convert(context.Background(), conf)
	require.ErrorContains(t, err, "holds x.tar already")
}

// BenchmarkConvert converts images of 43 KB; MB/cpu-s is of files, for each second of one core.
func BenchmarkConvert(b *testing.B) {
	dir := b.TempDir()
	require.NoError(b, os.Mkdir(dir+"/img", 0o700))
	var lines strings.Builder
	image := make([]byte, 43_000)
	const n = 2000
	for i := range n {
		require.NoError(b, os.WriteFile(fmt.Sprintf("%s/img/%d.jpg", dir, i), image, 0o600))
		lines.WriteString(entryText("<image>\nWhat is shown in this image?",
			fmt.Sprintf(`,"image":"%d.jpg"`, i)) + "\n")
	}
	require.NoError(b, os.WriteFile(dir+"/a.jsonl", []byte(lines.String()), 0o600))
	b.SetBytes(n * 43_000)
	for k := 0; b.Loop(); k++ {
		out := fmt.Sprintf("%s/out-%d", dir, k)
		_, err := Convert(context.Background(), ConvertConfig{OutputDir: out,
			AnnotationOptions: format.AnnotationOptions{JSONFile: dir + "/a.jsonl", ImageDir: dir + "/img",
				SampleType: "multi_mix_qa"}})
		require.NoError(b, err)
		require.NoError(b, os.RemoveAll(out))
	}
}
