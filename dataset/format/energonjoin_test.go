package format

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// joinSets writes data sets of samples s1… as their keys say, each with files that its name tells.
func joinSets(t *testing.T, dir string, sets map[string]string, ext map[string]string,
	meta map[string]map[string]any) {
	t.Helper()
	for name, keys := range sets {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		fields := strings.Fields(keys)
		var names []string
		for k, part := range [][]string{fields[:len(fields)/2], fields[len(fields)/2:]} {
			shard := fmt.Sprintf("shard-%d.tar", k)
			w, err := CreateShard(filepath.Join(dir, name, shard))
			require.NoError(t, err)
			for _, key := range part {
				require.NoError(t, w.Add(key, []dataset.Part{{Name: ext[name],
					Bytes: []byte(name + " " + key)}}))
			}
			require.NoError(t, w.Close())
			names = append(names, shard)
		}
		_, err := PrepareEnergon(filepath.Join(dir, name), EnergonPlan{Shards: names, Meta: meta[name]})
		require.NoError(t, err)
	}
}

// joinedOf opens a join and gives its rows as text: the key, and each file with its content.
func joinedOf(t *testing.T, dir, text string) (out []string, err error) {
	t.Helper()
	path := filepath.Join(dir, "join.yaml")
	require.NoError(t, os.WriteFile(path,
		[]byte("__module__: megatron.energon\n__class__: MetadatasetV2\nsplits: {train: "+
			text+"}\n"), 0o600))
	list, err := dataset.OpenBlend(path, dataset.Options{})
	if err != nil {
		return nil, err
	}
	for _, w := range list {
		for i := range w.Source.Len() {
			d, err := w.Source.Read(i)
			require.NoError(t, err)
			row := d.Key + ":"
			for _, p := range d.Parts {
				row += fmt.Sprintf(" %s=%s", p.Name, p.Bytes)
			}
			out = append(out, row)
		}
		require.NoError(t, w.Source.Close())
	}
	return out, nil
}

// Samples of several data sets are joined by key as Energon's documentation has it: those of the first, in its order,
// without those that a set lacks which skips them.
func TestJoin(t *testing.T) {
	dir := t.TempDir()
	joinSets(t, dir, map[string]string{"ds1": "s1 s2 s3 s5 s6", "ds2": "s1 s3 s4 s6 s7",
		"ds3": "s1 s2 s3 s100", "two": "s1 s2",
		"same": "s1 s2 s3 s5 s6"}, map[string]string{"ds1": "jpg", "ds2": "txt", "ds3": "json", "two": "txt",
		"same": "jpg"}, nil)
	rows, err := joinedOf(t, dir, "{join: [{path: ds1}, {path: ds2, nonmatch: skip}, {path: ds3, "+
		"nonmatch: none}]}")
	require.NoError(t, err)
	require.Equal(t, []string{"s1: jpg=ds1 s1 txt=ds2 s1 json=ds3 s1",
		"s3: jpg=ds1 s3 txt=ds2 s3 json=ds3 s3", "s6: jpg=ds1 s6 txt=ds2 s6"}, rows)
	rows, err = joinedOf(t, dir, "{subset: {range: [0%, 40%]}, join: [{path: ds1}, {path: ds3, "+
		"nonmatch: none}]}")
	require.NoError(t, err)
	require.Equal(t, []string{"s1: jpg=ds1 s1 json=ds3 s1", "s2: jpg=ds1 s2 json=ds3 s2"}, rows)
	rows, err = joinedOf(t, dir, "{blend: [{weight: 1, join: [{path: ds1}, {path: ds2, nonmatch: "+
		"skip}]}, {weight: 2, path: ds3}]}")
	require.NoError(t, err)
	require.Len(t, rows, 3+4)
	_, err = joinedOf(t, dir, "{join: [{path: ds1}, {path: ds2}]}")
	require.ErrorContains(t, err, `the sample "s2" of `+filepath.Join(dir, "ds1")+" is not in "+filepath.Join(dir, "ds2")+
		"; set nonmatch there to skip or none")
	text := "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits: {train: {join: [{path: " +
		"ds1}, {path: same}]}}\n"
	path := filepath.Join(dir, "twice.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	s, err := dataset.Open(path, dataset.Options{})
	require.NoError(t, err)
	_, err = s.Read(0)
	require.ErrorContains(t, err, `both have its file "jpg"; part_filter`)
	require.NoError(t, s.Close())
}

// With a class of Energon's own the fields of the samples are joined by name, the last that has one.
func TestJoinFields(t *testing.T) {
	dir := t.TempDir()
	meta := func(class string, fields map[string]any) map[string]any {
		return map[string]any{"__module__": "megatron.energon", "__class__": class + "Webdataset", "field_map": fields}
	}
	joinSets(t, dir, map[string]string{"vqa": "a b c", "images": "c b", "other": "a b c"},
		map[string]string{"vqa": "json", "images": "png", "other": "txt"},
		map[string]map[string]any{"vqa": meta("VQA", map[string]any{"context": "json[q]",
			"answers": "json[a]", "image": "jpg"}),
			"images": meta("Image", map[string]any{"image": "jpg,png"}), "other": meta("Text",
				map[string]any{"text": "txt"})})
	const by = "joiner: {__module__: megatron.energon, __class__: VQASample}"
	path := filepath.Join(dir, "join.yaml")
	write := func(text string) {
		require.NoError(t, os.WriteFile(path,
			[]byte("__module__: megatron.energon\n__class__: MetadatasetV2\nsplits: {train: "+
				text+"}\n"), 0o600))
	}
	write("{join: [{path: vqa}, {path: images, nonmatch: none}], " + by + "}")
	s, err := dataset.Open(path, dataset.Options{})
	require.NoError(t, err)
	defer s.Close()
	d, err := s.Read(1)
	require.NoError(t, err)
	require.Equal(t, "b", d.Key)
	require.Equal(t, map[string]string{"context": "json[q]", "answers": "json[a]", "image": "1.jpg,1.png"},
		d.Layout.Fields)
	b, ok := d.Part("1.png")
	require.True(t, ok)
	require.Equal(t, "images b", string(b))
	d, err = s.Read(0)
	require.NoError(t, err)
	require.Equal(t, "jpg", d.Layout.Fields["image"], "the first one's, where the other has none")
	write("{join: [{path: vqa}, {path: other}], " + by + "}")
	_, err = dataset.Open(path, dataset.Options{})
	require.ErrorContains(t, err, `other: samples of VQASample have no field "text"`)
}

// keyCount counts how often keys are asked for.
type keyCount struct {
	dataset.Source
	keys  []string
	asked int
	at    string
}

func (c *keyCount) Kind() dataset.Kind  { return dataset.KindParts }
func (c *keyCount) Len() int64          { return int64(len(c.keys)) }
func (c *keyCount) Fingerprint() string { return c.at }
func (c *keyCount) state() string       { return c.at }
func (c *keyCount) key(i int64) (string, error) {
	c.asked++
	return c.keys[i], nil
}

// A join asks for each key once, and for none when it is opened again while the files are the same.
func TestJoinKept(t *testing.T) {
	name := fmt.Sprint(t.TempDir())
	list := []metaJoin{{Path: "a"}, {Path: "b", Nonmatch: joinNone}}
	open := func(mark string) (*joined, []*keyCount) {
		parts := []*keyCount{{keys: []string{"a", "", "b"}, at: name + "1"}, {keys: []string{"c"}, at: name + "2"},
			{keys: []string{"c", "d", "a"}, at: name + mark}}
		j := &joined{}
		for i, p := range [][]dataset.Source{{parts[0], parts[1]}, {parts[2]}} {
			s, err := dataset.Concat(p...)
			require.NoError(t, err)
			j.sets = append(j.sets, &joinSet{Source: s, parts: p, path: list[i].Path})
		}
		require.NoError(t, j.matched(list))
		require.Equal(t, [][]int64{{0, 1, 2, 3}, {2, -1, -1, 0}}, j.rows)
		return j, parts
	}
	for i, c := range []struct {
		mark string
		want []int
	}{{"x", []int{3, 1, 3}}, {"x", []int{0, 0, 0}}, {"changed", []int{3, 1, 3}}} {
		j, parts := open(c.mark)
		for k, p := range parts {
			require.Equal(t, c.want[k], p.asked, "opening %d, part %d", i, k)
		}
		b := j.encodeRows()
		require.ErrorIs(t, j.decodeRows(b[:len(b)-1]), errRows)
		require.ErrorIs(t, j.decodeRows(append(b, 0)), errRows)
	}
}

// A key that comes twice in a set that is joined is an error.
func TestJoinTwice(t *testing.T) {
	dir := t.TempDir()
	joinSets(t, dir, map[string]string{"a": "x y", "b": "x y"}, map[string]string{"a": "jpg", "b": "txt"},
		nil)
	w, err := CreateShard(filepath.Join(dir, "b", "shard-1.tar"))
	require.NoError(t, err)
	require.NoError(t, w.Add("x", []dataset.Part{{Name: "txt", Bytes: []byte("again")}}))
	require.NoError(t, w.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, "b", "shard-1.tar.idx")))
	_, err = joinedOf(t, dir, "{join: [{path: a}, {path: b, nonmatch: skip}]}")
	require.ErrorContains(t, err, `the key "x" comes twice`)
}
