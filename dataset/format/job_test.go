package format

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// A job read without converting first gives the samples that converting gives, in the same order, with the
// bad ones in their places.
func TestJobAsData(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	conf := ConvertConfig{OutputDir: out, JSONFile: convertDir + "/mix.jsonl", ImageDir: convertDir +
		"/images", VideoDir: convertDir + "/videos", Media: "mix", SampleType: "multi_mix_qa"}
	_, err := Convert(context.Background(), conf)
	require.NoError(t, err)
	job := filepath.Join(t.TempDir(), "job.yaml")
	text := fmt.Sprintf("output: never\nsources:\n  - {json: %s, image_dir: %s, video_dir: %s, media: "+
		"mix, sample_type: multi_mix_qa}\n  - {shards: %s}\n", conf.JSONFile, conf.ImageDir,
		conf.VideoDir, out)
	require.NoError(t, os.WriteFile(job, []byte(text), 0o600))
	want, got := samplesOf(t, open(t, out, dataset.Options{})), samplesOf(t, open(t, job, dataset.Options{}))
	require.Equal(t, append(want, want...), got)
	require.NoDirExists(t, "never")

	c := annotations(t, entryOf("<image>q", `,"image":"a.jpg"`),
		entryOf("<image>q", `,"image":"missing.jpg"`))
	require.NoError(t, os.WriteFile(job,
		[]byte(fmt.Sprintf("output: never\nsources: [{json: %s, image_dir: %s, sample_type: multi_mix_qa}]",
			c.JSONFile, c.ImageDir)), 0o600))
	s := open(t, job, dataset.Options{})
	_, err = s.Read(0)
	require.NoError(t, err)
	_, err = s.Read(1)
	var bad *dataset.BadSample
	require.True(t, errors.As(err, &bad))
	require.Contains(t, bad.Reason, "no such file")
}
