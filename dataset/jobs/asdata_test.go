package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// The fingerprint of a job read as data, which checkpoints hold, is what it was when the first of them was
// written: it counts the sizes of shards that nobody gave by their defaults.
func TestJobFingerprint(t *testing.T) {
	job := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(job, []byte("output: never\nsources:\n  - {json: "+convertDir+
		"/mix.jsonl, image_dir: "+convertDir+"/images, video_dir: "+convertDir+
		"/videos, media: mix, sample_type: multi_mix_qa}\n"), 0o600))
	s := open(t, job, dataset.Options{})
	require.Equal(t, "7ca8234cdd72a54fcff66c168681c445", s.Fingerprint())
}

// A job read without converting first gives the samples that converting gives, in the same order, with the
// bad ones in their places.
func TestJobAsData(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	conf := ConvertConfig{OutputDir: out, AnnotationOptions: format.AnnotationOptions{
		JSONFile: convertDir + "/mix.jsonl", ImageDir: convertDir + "/images",
		VideoDir: convertDir + "/videos", Media: "mix", SampleType: "multi_mix_qa"}}
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
	fields := annotations(t, `{"id":"a","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},`+
		`{"role":"user","content":"r"},{"role":"assistant","content":"b"}],"image":"a.jpg"}`,
		`{"id":"b","messages":[{"role":"user","content":"q"}],"image":"a.jpg"}`)
	fields.SampleType = "vqa"
	r, err := Convert(context.Background(), fields)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Bad, "it has no answer where dataset.yaml says that it is")
	require.NoError(t, os.WriteFile(job, fmt.Appendf(nil,
		"output: never\nsources: [{json: %s, image_dir: %s, "+
			"sample_type: vqa}]", fields.JSONFile, fields.ImageDir), 0o600))
	for _, path := range []string{fields.OutputDir, job} {
		d, err := open(t, path, dataset.Options{}).Read(0)
		require.NoError(t, err)
		list, err := format.Converse(&d, "", dataset.Tags{})
		require.NoError(t, err)
		require.Len(t, list[0].Messages, 2, "%s: one question and its answer, as Energon has them", path)
	}

	c := annotations(t, entryText("<image>q", `,"image":"a.jpg"`),
		entryText("<image>q", `,"image":"missing.jpg"`))
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
