package format

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

func energonSet(t *testing.T, meta map[string]string) string {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".nv-meta"), 0o700))
	for i, name := range []string{"s-0.tar", "s-1.tar", "s-2.tar"} {
		k := string(rune('a' + 2*i))
		l := string(rune('b' + 2*i))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), tarOf(t, file("x/"+k+".txt", 1),
			file("x/"+l+".txt", 1)), 0o600))
	}
	for name, text := range meta {
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".nv-meta", name), []byte(text), 0o600))
	}
	return dir
}

const split = "split_parts:\n  train: ['s-{0..1}.tar', s-2.tar]\n  val: [s-2.tar]\n"

// The fields of a sample are where field_map says, and what dataset.yaml says that nobody can do here is an
// error. Source of the rules: megatron-energon 7.4.1, flavors/webdataset/field_access.py.
func TestEnergonFields(t *testing.T) {
	vqa := "sample_type: {__module__: megatron.energon, __class__: VQASample}\nfield_map: "
	caption := "__module__: megatron.energon\n__class__: CaptioningWebdataset\nfield_map: "
	parts := []dataset.Part{{Name: "a.jpg", Bytes: []byte("\xff\xd8")}, {Name: "png", Bytes: []byte("p")},
		{Name: "json", Bytes: []byte(`{"q":["one","two"],"deep":{"a":[{"b":"three"}]},"n":5}`)},
		{Name: "question.txt", Bytes: []byte("why?")}}
	for _, c := range []struct{ yaml, want string }{
		{vqa + "{image: a.jpg, context: question.txt, answers: 'json[deep][a][0][b]'}",
			"a.jpg why? | three"},
		{vqa + "{image: png, context: 'json[none],json[q][1]', answers: 'json[q]'}", "png two | one"},
		{caption + "{image: png, caption: 'json[q][-1]'}", "png  | two"},
		{vqa + "{image: tif, context: question.txt, answers: question.txt}", `no file "tif"`},
		{vqa + "{image: png, context: 'json[n]', answers: question.txt}", `"context" (json[n]) is no text`},
		{vqa + "{image: png, context: 'json[z]', answers: question.txt}", `no "context"`},
		{vqa + "{image: png, question: 'json[z]'}", `no field "question"`},
		{"sample_type: {__module__: megatron.energon, __class__: OCRSample}\nfield_map: {image: png}",
			`class "OCRSample"; those of CaptioningSample, VQASample are read`},
		{"sample_loader: sample_loader.py:load\npart_filter: sample_loader.py:part", "code in Python"},
		{"sample_type: {__module__: my, __class__: Own}", "sample_type without field_map"},
		{"subflavours: {a: b}", `no key "subflavours"`},
	} {
		dir := energonSet(t, map[string]string{"split.yaml": split, "dataset.yaml": c.yaml})
		w, err := CreateShard(filepath.Join(dir, "s-0.tar"))
		require.NoError(t, err)
		require.NoError(t, w.Add("k", parts))
		require.NoError(t, w.Close())
		s, err := dataset.Open(dir, dataset.Options{})
		if err == nil {
			var d dataset.Document
			d, err = s.Read(0)
			require.NoError(t, err)
			var list []Conversation
			if list, err = Converse(&d, "", dataset.Tags{}); err == nil {
				m := list[0].Messages
				require.Len(t, m, 2)
				require.Equal(t, c.want, strings.TrimPrefix(list[0].Media[0].Key, "k.")+" "+
					spoken(t, m[0])+" | "+spoken(t, m[1]))
				part, err := Packable(&d, "")
				require.NoError(t, err)
				require.Equal(t, []string{strings.TrimPrefix(list[0].Media[0].Key, "k.")}, part.Files)
			}
			require.NoError(t, s.Close())
		}
		if err != nil {
			require.ErrorContains(t, err, c.want, c.yaml)
		}
	}
}

// spoken is the text of a message, whatever media stand in it.
func spoken(t *testing.T, m dataset.Message) string {
	var parts struct{ Content []struct{ Text string } }
	if m.Raw == nil || json.Unmarshal(m.Raw, &parts) != nil {
		return m.Content
	}
	text := ""
	for _, p := range parts.Content {
		text += p.Text
	}
	return text
}

// Parts, exclusions of shards and of samples, and the description's other files.
func TestEnergon(t *testing.T) {
	for _, c := range []struct {
		split, part string
		want        []string
	}{
		{split, "", []string{"x/a txt", "x/b txt", "x/c txt", "x/d txt", "x/e txt", "x/f txt"}},
		{split, "val", []string{"x/e txt", "x/f txt"}},
		{split + "exclude: [s-1.tar, s-0.tar/x/b]\n", "", []string{"x/a txt", "x/e txt", "x/f txt"}},
		{split + "exclude: ['s-{0..1}.tar/x/{a,d}']\n", "train",
			[]string{"x/b txt", "x/c txt", "x/e txt", "x/f txt"}},
	} {
		dir := energonSet(t, map[string]string{"split.yaml": c.split})
		require.Equal(t, c.want, outcomesOf(t, formattest.Open(t, dir, dataset.Options{Split: c.part})))
	}
}

func outcomesOf(t *testing.T, s dataset.Source) (out []string) {
	for i := range s.Len() {
		d, err := s.Read(i)
		require.NoError(t, err)
		out = append(out, d.Key+" "+d.Parts[0].Name)
	}
	return out
}

func TestReadEnergon(t *testing.T) {
	dir := energonSet(t, map[string]string{"split.yaml": split,
		".info.json": `{"energon_version": "7.4.1", "shard_counts": {"s-0.tar": 2, "s-1.tar": 3}}`,
		"dataset.yaml": "__module__: megatron.energon\n__class__: CaptioningWebdataset\nfield_map: " +
			"{image: jpg, caption: txt}\nsubflavors: {augment: true}\n"})
	e, err := ReadEnergon(dir)
	require.NoError(t, err)
	require.Equal(t, &Energon{Dir: dir, Version: "7.4.1", Class: "megatron.energon:CaptioningWebdataset",
		Fields:  map[string]string{"image": "jpg", "caption": "txt"},
		Flavors: map[string]any{"augment": true},
		Splits:  map[string][]string{"train": {"s-0.tar", "s-1.tar", "s-2.tar"}, "val": {"s-2.tar"}},
		Exclude: map[string][]string{}, Counts: map[string]int64{"s-0.tar": 2, "s-1.tar": 3}}, e)
}

func TestEnergonRefuses(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
	}{
		{"split.yaml", "split_parts: {train: [../x.tar]}", "outside the data set's folder"},
		{"split.yaml", "split_parts: {train: [/x.tar]}", "outside the data set's folder"},
		{"split.yaml", "split_parts: {train: ['{0..9999999}.tar']}", "more than"},
		{"split.yaml", "split_parts: {val: [s-0.tar]}", `no shards for the part "train"`},
		{"split.yaml", "split_parts: {train: [s-9.tar]}", "no such file"},
		{"split.yaml", "split_parts: 7", "split.yaml: yaml"},
		{"dataset.yaml", "", "energon prepare"},
		{".info.json", "", "energon prepare"},
	} {
		_, err := dataset.Open(energonSet(t, map[string]string{c.name: c.text}), dataset.Options{})
		require.ErrorContains(t, err, c.want)
	}
}

func FuzzEnergonSplit(f *testing.F) {
	f.Add([]byte(split), []byte(`{"shard_counts": {"a": 1}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		dir := energonSet(t, map[string]string{"split.yaml": string(a), ".info.json": string(b)})
		if s, err := dataset.Open(dir, dataset.Options{}); err == nil {
			require.NoError(t, s.Close())
		}
	})
}
