package ckpt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	_ "github.com/lfactor/lfactor/stages/family/all"
)

var long = flag.Bool("long", false, "convert 10,000 damaged folders in place of some")

// damaged is a model's safetensors file that is to be damaged.
type damaged struct {
	infos map[string]*entry
	names []string
	data  map[string][]byte
}

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

func readDamaged(t *testing.T, path string) *damaged {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	n := 8 + int(binary.LittleEndian.Uint64(raw))
	var all map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw[8:n], &all))
	d := &damaged{infos: map[string]*entry{}, data: map[string][]byte{}}
	for _, name := range checkpoint.SortedKeys(all) {
		var e entry
		if name != "__metadata__" {
			require.NoError(t, json.Unmarshal(all[name], &e))
			d.names, d.infos[name] = append(d.names, name), &e
			d.data[name] = append([]byte{}, raw[n+int(e.Offsets[0]):n+int(e.Offsets[1])]...)
		}
	}
	return d
}

// write puts the tensors into a folder, in one file or in two with an index that says another thing of the tensor wrong; cut bytes are
// missing at the end of the last file.
func (d *damaged) write(t *testing.T, dir string, cut int, wrong string, files int) {
	names := checkpoint.SortedKeys(d.infos)
	if files == 1 {
		d.file(t, filepath.Join(dir, "model.safetensors"), names, cut)
		return
	}
	weights, half := map[string]string{}, len(names)/2
	for i, part := range [][]string{names[:half], names[half:]} {
		file := fmt.Sprintf("model-%05d-of-00002.safetensors", i+1)
		d.file(t, filepath.Join(dir, file), part, i*cut)
		for _, name := range part {
			weights[name] = file
		}
	}
	if wrong != "" {
		weights[wrong] = "model-00003-of-00002.safetensors"
	}
	index, err := json.Marshal(map[string]any{"weight_map": weights})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o600))
}

func (d *damaged) file(t *testing.T, path string, names []string, cut int) {
	var body []byte
	infos := map[string]*entry{}
	for _, name := range names {
		infos[name] = d.infos[name]
		d.infos[name].Offsets = [2]int64{int64(len(body)), int64(len(body) + len(d.data[name]))}
		body = append(body, d.data[name]...)
	}
	head, err := json.Marshal(infos)
	require.NoError(t, err)
	raw := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	raw = append(raw, body...)
	require.NoError(t, os.WriteFile(path, raw[:len(raw)-cut], 0o600))
}

// mutations damage a tensor, of float32, of a file; what they return is cut from the file's end.
var mutations = map[string]func(d *damaged, name string, r *rand.Rand) int{
	"missing": func(d *damaged, name string, _ *rand.Rand) int { delete(d.infos, name); return 0 },
	"extra": func(d *damaged, name string, _ *rand.Rand) int {
		d.infos[name+"_more"], d.data[name+"_more"] = &entry{DType: "F32", Shape: []int{1}}, make([]byte, 4)
		return 0
	},
	"renamed": func(d *damaged, name string, _ *rand.Rand) int {
		d.infos["x."+name], d.data["x."+name] = d.infos[name], d.data[name]
		delete(d.infos, name)
		return 0
	},
	"misshapen": func(d *damaged, name string, r *rand.Rand) int {
		e := d.infos[name]
		if r.IntN(2) == 0 {
			e.Shape = append([]int{1}, e.Shape...)
			return 0
		}
		row := len(d.data[name]) / e.Shape[0]
		e.Shape[0]--
		d.data[name] = d.data[name][row:]
		return 0
	},
	"codes": func(d *damaged, name string, r *rand.Rand) int {
		e := d.infos[name]
		e.DType = []string{"I8", "U8", "I32", "BOOL"}[r.IntN(4)]
		if e.DType != "I32" {
			d.data[name] = make([]byte, len(d.data[name])/4)
		}
		return 0
	},
	"infinite": func(d *damaged, name string, r *rand.Rand) int {
		x := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}[r.IntN(3)]
		binary.LittleEndian.PutUint32(d.data[name][4*r.IntN(len(d.data[name])/4):], math.Float32bits(x))
		return 0
	},
	"cut":   func(d *damaged, _ string, r *rand.Rand) int { return 1 + r.IntN(60) },
	"index": func(*damaged, string, *rand.Rand) int { return 0 },
}

// tokenizer is one of eleven tokens, for a form that keeps tokenizers.
const tokenizer = `{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
	"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "merges": [["a", "b"], ["ab", "c"]],
	"vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "g": 6, "h": 7, "i": 8, "ab": 9, "abc": 10}}}`

// TestDamagedFolders: a folder with a tensor that is missing, of no layer, misshapen, of codes, not finite or cut, in one file or in two
// whose index may name a file that is not there, is converted to no form, also where no logits are compared: the error is one of a checkpoint, of exit code 6.
// With -long there are 10,000.
func TestDamagedFolders(t *testing.T) {
	t.Parallel()
	count := 280
	if *long {
		count = 10000
	}
	bases := []string{"../../../stages/trained/testdata/adapters/base", "../../../stages/family/testdata/gpt2",
		"../../../stages/family/testdata/phi3", "../../../stages/family/testdata/mixtral"}
	targets := []string{"hf", "torch", "dcp", "lfactor", "gguf", "megatron"}
	small := t.TempDir()
	require.NoError(t, os.CopyFS(small, os.DirFS(bases[0])))
	require.NoError(t, os.WriteFile(filepath.Join(small, "tokenizer.json"), []byte(tokenizer), 0o600))
	bases[0] = small
	kinds := checkpoint.SortedKeys(mutations)
	r := rand.New(rand.NewPCG(1, 2))
	works := map[[2]string]bool{}
	for _, base := range bases {
		for _, to := range targets {
			works[[2]string{base, to}] = convertTo(t, base, to) == nil
		}
		require.True(t, works[[2]string{base, "hf"}] && works[[2]string{base, "torch"}] && works[[2]string{base, "lfactor"}], base)
		require.True(t, base != small || works[[2]string{base, "gguf"}])
	}
	refused := map[string]int{}
	for i := 0; i < count; {
		base, to, kind := bases[r.IntN(len(bases))], targets[r.IntN(len(targets))], kinds[r.IntN(len(kinds))]
		if !works[[2]string{base, to}] {
			continue
		}
		i++
		dir := t.TempDir()
		for _, side := range []string{"config.json", "tokenizer.json"} {
			if text, err := os.ReadFile(filepath.Join(base, side)); err == nil {
				require.NoError(t, os.WriteFile(filepath.Join(dir, side), text, 0o600))
			}
		}
		d := readDamaged(t, filepath.Join(base, "model.safetensors"))
		name := d.names[r.IntN(len(d.names))]
		cut, wrong, files := mutations[kind](d, name, r), "", 1+r.IntN(2)
		if kind == "index" {
			wrong, files = name, 2
		}
		d.write(t, dir, cut, wrong, files)
		err := convertTo(t, dir, to)
		var fault *checkpoint.Error
		require.True(t, errors.As(err, &fault), "%s of %s, %s, to %s: %v", kind, base, name, to, err)
		refused[kind+" "+to]++
		require.NoError(t, os.RemoveAll(dir))
	}
	for _, key := range checkpoint.SortedKeys(refused) {
		t.Logf("%d %s", refused[key], key)
	}
}

// convertTo converts a folder without a probe.
func convertTo(t *testing.T, dir, to string) error {
	dst := filepath.Join(t.TempDir(), "dst")
	defer os.RemoveAll(dst) //nolint:errcheck // the test's folder goes too
	o := conversion{to: to, goal: to, noProbe: true, src: dir, limit: 1 << 30, divisible: 1}
	if to == "hf" {
		o.dtype = "bf16"
	}
	o.journal = nil
	c := &cobra.Command{}
	c.SetErr(io.Discard)
	return o.convert(c, dir, dst)
}

// TestNamedFolders: an adapter in a pickle, and a folder that has a GGUF file alone, are named.
func TestNamedFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{checkpoint.AdapterConfigName, "adapter_model.bin", "x.gguf"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600))
	}
	o := conversion{to: "hf"}
	require.ErrorContains(t, o.check(&cobra.Command{}, []string{dir, filepath.Join(t.TempDir(), "out")}), "adapter_model.bin, a pickle")
	_, err := configs.ReadModel(dir)
	require.ErrorContains(t, err, "the folder has x.gguf: name that file")
}
