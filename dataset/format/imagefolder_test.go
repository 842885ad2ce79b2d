package format

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// folderOf writes files by their names.
func folderOf(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
	}
	return dir
}

// sampleParts are a sample's parts by name, those of its JSON under their keys.
func sampleParts(t *testing.T, d dataset.Document) map[string]string {
	out := map[string]string{}
	for _, p := range d.Parts {
		if p.Name != "json" {
			out[p.Name] = string(p.Bytes)
			continue
		}
		var keys map[string]any
		require.NoError(t, json.Unmarshal(p.Bytes, &keys))
		for k, v := range keys {
			if s, ok := v.(string); ok {
				out["json."+k] = s
			}
		}
	}
	return out
}

// Pictures come with what metadata says of them, in JSON lines or CSV, below the folder or a split of it, or with the
// text of their name; the same format is found without being named.
func TestImageFolder(t *testing.T) {
	lines := `{"file_name": "b.PNG", "text": "two"}` + "\n\n" + `{"file_name": "sub/a.jpg", "text": "one", "n": 1}` + "\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  []map[string]string
	}{
		"json lines": {map[string]string{"metadata.jsonl": lines, "b.PNG": "B", "sub/a.jpg": "A", "README.md": "# x"},
			[]map[string]string{{"png": "B", "json.text": "two", "json.file_name": "b.PNG"},
				{"jpg": "A", "json.text": "one", "json.file_name": "sub/a.jpg"}}},
		"a split": {map[string]string{"train/metadata.jsonl": `{"file_name": "a.webp", "caption": "c"}`, "train/a.webp": "A"},
			[]map[string]string{{"webp": "A", "json.caption": "c", "json.file_name": "a.webp"}}},
		"csv": {map[string]string{"metadata.csv": "\uFEFFfile_name,text\na.jpg,\"one, \"\"two\"\"\"\n", "a.jpg": "A"},
			[]map[string]string{{"jpg": "A", "json.text": `one, "two"`, "json.file_name": "a.jpg"}}},
		"pictures that are changed": {map[string]string{"metadata.jsonl": `{"target_file_name": "t.png", "original_file_name": "o.png"` +
			`, "zoom_file_name": "z.jpg", "edit_prompt": "e"}`, "t.png": "T", "o.png": "O", "z.jpg": "Z"},
			[]map[string]string{{"png": "T", "cond0.png": "O", "cond1.jpg": "Z", "json.edit_prompt": "e",
				"json.target_file_name": "t.png", "json.original_file_name": "o.png", "json.zoom_file_name": "z.jpg"}}},
		"texts beside": {map[string]string{"a.jpg": "A", "a.txt": "one", "b.png": "B", "b.caption": "two", "c.gif": "C", ".hidden": ""},
			[]map[string]string{{"jpg": "A", "txt": "one"}, {"png": "B", "txt": "two"}, {"gif": "C"}}},
	} {
		s := formattest.Open(t, folderOf(t, c.files), dataset.Options{})
		require.Equal(t, dataset.KindParts, s.Kind(), name)
		require.Equal(t, int64(len(c.want)), s.Len(), name)
		for i, want := range c.want {
			d, err := s.Read(int64(i))
			require.NoError(t, err, name)
			require.Equal(t, want, sampleParts(t, d), name)
		}
	}
}

// What metadata and folder do not agree about is bad by itself; what leaves the folder or cannot be read refuses it.
func TestImageFolderBad(t *testing.T) {
	dir := folderOf(t, map[string]string{"metadata.jsonl": `{"file_name": "a.jpg", "text": "x"}` + "\n" + `{"file_name": "gone.jpg"}`,
		"a.jpg": "A", "unsaid.jpg": "U"})
	s := formattest.Open(t, dir, dataset.Options{})
	require.Equal(t, int64(3), s.Len())
	_, err := s.Read(0)
	require.NoError(t, err)
	for i, why := range map[int64]string{1: "no such file", 2: "the folder's metadata says nothing of it"} {
		_, err := s.Read(i)
		var bad *dataset.BadSample
		require.ErrorAs(t, err, &bad)
		require.Contains(t, bad.Reason, why)
	}
	for text, why := range map[string]string{`{"file_name": "../x.jpg"}`: `file_name "../x.jpg" leaves the folder`,
		`{"text": "x", "file_names": 1}`: "line 1 has no file_name", `{"file_name": }`: "metadata.jsonl:1:",
		`{"file_name": "a.jpg"}` + "\n" + `{"file_name": "a.jpg"}`: `line 2 names "a.jpg" a second time`} {
		_, err := dataset.Open(folderOf(t, map[string]string{"metadata.jsonl": text, "a.jpg": "A"}), dataset.Options{})
		require.ErrorContains(t, err, why)
	}
	// a folder of texts with a picture is one of texts
	s = formattest.Open(t, folderOf(t, map[string]string{"a.txt": "one", "b.txt": "two", "logo.png": "P"}), dataset.Options{})
	require.Equal(t, dataset.KindText, s.Kind())
}

// A caption is the key that a run names, "text" where it names none and there is no "caption".
func TestCaptionKeys(t *testing.T) {
	d := dataset.Document{Parts: []dataset.Part{{Name: "json", Bytes: []byte(`{"text": "diffusers'", "prompt": "own"}`)}}}
	for key, want := range map[string]string{"caption": "diffusers'", "prompt": "own"} {
		got, err := (&CaptionEncoder{Key: key}).caption(&d)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := (&CaptionEncoder{Key: "words"}).caption(&d)
	require.ErrorContains(t, err, `"words" is no text in it; its keys are prompt, text; diffusion.caption_key`)
}
