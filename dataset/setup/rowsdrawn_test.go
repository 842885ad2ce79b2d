package setup

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/token"
)

var longTier = flag.Bool("long", false, "draw rows of data in every form and hold them to transformers and TRL")

// drawnRow is what a row is to transformers and TRL: its samples, or nothing where it must be refused.
type drawnRow struct {
	Refuse  bool
	Samples []drawnSample
}

// drawnSample is a sample: Mask is nil of a prompt, and where Unlike says that the template's marks are not its turns.
type drawnSample struct {
	IDs                []int32
	Mask               []int
	How, Error, Unlike string
}

// TestRowsDrawn: rows of conversations, prompts, pairs and judged answers in the forms that other trainers write, as
// JSON lines and as Parquet, under 24 tokenizers and templates, of which ten drop white space: the ids and masks that a
// run learns are those of transformers and TRL, or the row is refused with a reason. It wants Python with transformers,
// TRL, datasets and pyarrow, named by LFACTOR_PYTHON or python3; LFACTOR_SEED draws others.
func TestRowsDrawn(t *testing.T) {
	if !*longTier {
		t.Skip("about 5,000 rows in 14 forms are held to transformers and TRL with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import transformers, trl, datasets, pyarrow").Run(); err != nil {
		t.Skipf("%s cannot import transformers, trl, datasets and pyarrow (%v): no row is compared", python, err)
	}
	dir := t.TempDir()
	out, err := exec.Command(python, "../../bench/golden/rows_drawn.py", dir, cmp.Or(os.Getenv("LFACTOR_SEED"), "1")).CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(strings.TrimSpace(string(out)))
	wants, err := filepath.Glob(filepath.Join(dir, "*", "*.want"))
	require.NoError(t, err)
	counts := map[string]map[string]int{}
	for _, want := range wants {
		stem := strings.TrimSuffix(want, ".want")
		form := strings.TrimSuffix(filepath.Base(stem), " table")
		if counts[form] == nil {
			counts[form] = map[string]int{}
		}
		compareRows(t, stem, counts[form])
	}
	for _, form := range slices.Sorted(maps.Keys(counts)) {
		all, c := 0, counts[form]
		for _, n := range c {
			all += n
		}
		t.Logf("%4d %s: %v", all, form, c)
		require.GreaterOrEqual(t, all, 200, form)
		require.GreaterOrEqual(t, 2*c["same"], all, "%s: most rows are the same", form)
	}
}

// compareRows compares the rows of a file, and counts what came of them.
func compareRows(t *testing.T, stem string, counts map[string]int) {
	tok, conf, err := token.LoadDir(filepath.Dir(stem))
	require.NoError(t, err)
	path := stem + ".jsonl"
	if _, err := os.Stat(path); err != nil {
		path = stem + ".parquet"
	}
	b, err := os.ReadFile(stem + ".want")
	require.NoError(t, err)
	wants := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	s, err := dataset.Open(path, dataset.Options{})
	require.NoError(t, err, path)
	defer s.Close()
	require.EqualValues(t, len(wants), s.Len(), path)
	require.NotEqual(t, dataset.KindText, s.Kind(), path)
	encode := encoderOf(t, s.Kind(), tok, conf)
	for i, line := range wants {
		var want drawnRow
		require.NoError(t, json.Unmarshal(line, &want))
		d, err := s.Read(int64(i))
		var have []dataset.Sample
		var bad *dataset.BadSample
		if err == nil {
			have, err = encode(&d)
		} else if !errors.As(err, &bad) {
			t.Errorf("%s, row %d: %v", path, i, err)
		}
		what, fault := want.compare(tok, have, err)
		if counts[what]++; fault != nil {
			t.Errorf("%s, row %d: %s: %v", path, i, what, fault)
		}
	}
}

// encoderOf makes samples of a kind's documents as a run does.
func encoderOf(t *testing.T, kind dataset.Kind, tok *token.Tokenizer, conf *token.Config) sampleEncoder {
	tmpl, err := token.NewTemplate(conf.ChatTemplate, conf)
	require.NoError(t, err)
	chat := token.NewChat(tok, tmpl, token.ChatOptions{})
	if kind == dataset.KindChat {
		return func(d *dataset.Document) ([]dataset.Sample, error) {
			ids, mask, err := chat.EncodeMessages(d.Messages, d.Tools, d.Vars)
			return []dataset.Sample{{Tokens: ids, Loss: mask}}, err
		}
	}
	eos, ok := tok.TokenID(conf.EOS)
	require.True(t, ok)
	pairs := &format.PairEncoder{Text: tok, EOS: eos, SeqLen: math.MaxInt, Chat: chat}
	require.NotNil(t, recordEncoders[kind], kind)
	return recordEncoders[kind](pairs, tmpl.Prompt)
}

// compare tells in a word what came of a row; a fault is a difference.
func (w *drawnRow) compare(tok *token.Tokenizer, have []dataset.Sample, err error) (string, error) {
	switch {
	case w.Refuse && err == nil:
		return "read, and not refused", errors.New("it should be refused")
	case w.Refuse:
		return "refused, as it should be", nil
	}
	for i, s := range w.Samples {
		if s.Error != "" {
			if err != nil {
				return "refused, as transformers fails or leaves something out", nil
			}
			return "read", fmt.Errorf("transformers says %s", s.Error)
		}
		if err != nil {
			if s.How != "" {
				return "refused as by transformers in the usual form", nil
			}
			for _, known := range []string{"does not write all", "cannot tell which text", "the answer before it"} {
				if strings.Contains(err.Error(), known) {
					return "refused: " + known, nil
				}
			}
			return "refused", err
		}
		if len(have) <= i || !slices.Equal(have[i].Tokens, s.IDs) {
			return "ids differ", fmt.Errorf("sample %d of %d: %s (%s)", i, len(have), parting(tok, have[i].Tokens, s.IDs), s.How)
		}
		for k, m := range s.Mask {
			if have[i].Loss[k] != (m == 1) {
				return "mask differs", fmt.Errorf("of sample %d, behind %q %q is learnt: %v (%s)", i,
					tok.Decode(s.IDs[max(0, k-20):k], false), tok.Decode(s.IDs[k:min(k+20, len(s.IDs))], false), have[i].Loss[k], s.How)
			}
		}
		if s.Unlike != "" {
			return "same ids, whose marks are not turns", nil
		}
	}
	return "same", nil
}

// parting shows where two lists of ids part.
func parting(tok *token.Tokenizer, have, want []int32) string {
	n := 0
	for n < min(len(have), len(want)) && have[n] == want[n] {
		n++
	}
	shown := func(ids []int32) string { return tok.Decode(ids[n:min(n+60, len(ids))], false) }
	return fmt.Sprintf("behind %q stands %q, want %q", tok.Decode(have[max(0, n-40):n], false), shown(have), shown(want))
}
