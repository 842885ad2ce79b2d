package imports

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// infoForms reads testdata/dataset_info.txt.
func infoForms(t *testing.T) (out []infoForm) {
	t.Helper()
	text, err := os.ReadFile("testdata/dataset_info.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSuffix(line, "\n"); line[0] {
		case '#':
		case '\t':
			last := &out[len(out)-1]
			*map[byte]*string{'=': &last.want, '!': &last.differs, 'x': &last.fault}[line[1]] = line[3:]
		default:
			stage, entry, _ := strings.Cut(line, " ")
			out = append(out, infoForm{stage: stage, entry: entry})
		}
	}
	return out
}

// infoForm is an entry of dataset_info.json with what a file of a stage makes of it.
type infoForm struct{ stage, entry, want, differs, fault string }

// TestDatasetInfoForms: each form of an entry of dataset_info.json acts, is refused, or is listed.
func TestDatasetInfoForms(t *testing.T) {
	for _, c := range infoForms(t) {
		r, dir, err := infoImport(t, `{"a": {`+c.entry+`}}`, "stage: "+c.stage+"\ndataset: a\n")
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault, c.entry)
			continue
		}
		require.NoError(t, err, c.entry)
		infoWritten(t, r, dir, c.want)
		var listed []string
		for _, d := range r.Differences {
			if d.Key != "model_name_or_path" {
				listed = append(listed, d.Key)
			}
		}
		want := strings.FieldsFunc(c.differs, func(c rune) bool { return c == '|' })
		require.ElementsMatch(t, want, listed, "%s\n%s", c.entry, r.Text)
	}
}

// infoImport imports a file two folders below the one that has data/dataset_info.json, as LLaMA-Factory's examples lie.
func infoImport(t *testing.T, info, text string) (*Result, string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"data/dataset_info.json": info, "data/a.json": "[]", "data/b.csv": "",
		"data/c.txt":           "",
		"examples/lora/a.yaml": "model_name_or_path: x\nfinetuning_type: full\n" + text} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	r, err := Import(filepath.Join(dir, "examples/lora/a.yaml"), Options{Tool: "llamafactory"})
	return r, dir, err
}

// infoWritten holds a result's settings to key=value parts, with paths from the folder on.
func infoWritten(t *testing.T, r *Result, dir, want string) {
	t.Helper()
	tree, written := map[string]any{}, map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(r.Text), &tree))
	flatten(written, "", tree)
	for _, part := range strings.FieldsFunc(want, func(c rune) bool { return c == '|' }) {
		key, value, _ := strings.Cut(part, "=")
		require.Equal(t, value, strings.ReplaceAll(fmt.Sprint(written[key]), dir+"/", ""), "%s\n%s", key, r.Text)
	}
}

// TestDatasetInfoNames: names are one text or a list, of training and of validation, each with its own entry; the file
// lies where dataset_dir says, and one that is not there is said.
func TestDatasetInfoNames(t *testing.T) {
	const info = `{"a": {"file_name": "a.json"}, "b": {"file_name": "a.json", "formatting": "sharegpt"}}`
	for text, want := range map[string]string{
		"dataset: a, b\n":   "data.paths=[data/a.json data/a.json]|data.dataset=[a b]",
		"dataset: [a, b]\n": "data.dataset=[a b]",
		"dataset: a\neval_dataset: b\neval_strategy: steps\neval_steps: 5\n": "" +
			"data.dataset=[a]|data.valid=[data/a.json]|data.valid_dataset=[b]",
		"dataset: a\neval_dataset: a,b\neval_on_each_dataset: true\n": "" +
			"data.valid=[map[name:a path:data/a.json] map[name:b path:data/a.json]]",
		"dataset: a\ndataset_dir: none\n":     "data.paths=[none/a.json*]|data.dataset=<nil>",
		"dataset: o/n\ndataset_dir: ONLINE\n": "data.paths=[ONLINE/o/n.json*]",
	} {
		r, dir, err := infoImport(t, info, "stage: sft\n"+text)
		require.NoError(t, err, text)
		infoWritten(t, r, dir, want)
		lacks := slices.ContainsFunc(r.Differences, func(d Difference) bool {
			return d.Key == "dataset" && strings.Contains(d.Why, "dataset_info.json, which is not here")
		})
		require.Equal(t, strings.Contains(text, "dataset_dir"), lacks, text)
	}
	_, _, err := infoImport(t, info, "stage: sft\ndataset: bb\n")
	require.ErrorContains(t, err, `bb: is no entry of it with a source; one of a, b`)
}
