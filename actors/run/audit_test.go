package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// audited audits a run whole.
func audited(t *testing.T, dir string, o AuditOptions) *Audited {
	t.Helper()
	o.Progress = io.Discard
	a, err := Audit(context.Background(), dir, o)
	require.NoError(t, err)
	return a
}

// plant is a change of one byte or line of a file of a run.
type plant struct {
	file   string
	change func(text []byte, r *rand.Rand) []byte
	found  string // begins what differs, or what is damaged
}

// digit changes one digit that follows a pattern in a line that is drawn.
func digit(after string) func([]byte, *rand.Rand) []byte {
	return func(text []byte, r *rand.Rand) []byte {
		all := regexp.MustCompile(after+`[-0-9.]*?([1-8])`).FindAllSubmatchIndex(text, -1)
		out := bytes.Clone(text)
		out[all[r.IntN(len(all))][2]]++
		return out
	}
}

// without leaves out the line of a step that is drawn, other than the last.
func without(text []byte, r *rand.Rand) []byte {
	lines, steps := bytes.SplitAfter(text, []byte("\n")), []int(nil)
	for i, l := range lines {
		if bytes.Contains(l, []byte(`"loss"`)) {
			steps = append(steps, i)
		}
	}
	i := steps[r.IntN(len(steps)-1)]
	return bytes.Join(append(lines[:i:i], lines[i+1:]...), nil)
}

// flipped changes a bit of the last half of a file, which tensors fill.
func flipped(text []byte, r *rand.Rand) []byte {
	out := bytes.Clone(text)
	out[len(out)/2+r.IntN(len(out)/2)] ^= 1 << r.IntN(8)
	return out
}

// TestAudit: a run that was stopped and went on passes, with all of its steps taken again from its beginning and its
// checkpoints, on other threads too; each of twenty changes of one sample, weight, setting, figure or line is found,
// and named; what nothing is left to take again from is said.
func TestAudit(t *testing.T) {
	t.Parallel()
	docs, _ := poisoned()
	dir := t.TempDir()
	log, saved := filepath.Join(dir, "log"), filepath.Join(dir, "saved")
	for _, steps := range []string{"train.steps=7", "train.steps=12"} { // which goes on from step 7
		_, said, err := spikeIn(t, dir, docs, steps, "checkpoint.interval=3", "checkpoint.keep=9", "plan.dp=2", "plan.zero=1",
			"train.eval_interval=5", "data.split=[9, 1, 0]", "schedule.kind=linear", "schedule.decay_steps=20")
		require.NoError(t, err, said)
	}
	a := audited(t, log, AuditOptions{Steps: 99})
	require.Empty(t, a.Differ)
	require.Empty(t, a.Damaged)
	require.Equal(t, []int{12, 12, 12, 12}, []int{a.Steps, a.Can, len(a.Drawn), a.Read})
	chain, err := record.ReadChain(log)
	require.NoError(t, err)
	require.Len(t, chain.Began, 2, "train.steps is another")
	require.Equal(t, a.Root, chain.Root)
	require.NotEmpty(t, chain.Saved)
	entries, err := checkpoint.List(saved)
	require.NoError(t, err)
	shards, err := filepath.Glob(filepath.Join(saved, "*", "*.safetensors"))
	require.NoError(t, err)
	require.NotEmpty(t, shards)
	texts := filepath.Join(dir, "texts.jsonl")
	ledger, err := dataset.ReadLedger(filepath.Join(log, LedgerName))
	require.NoError(t, err)
	word := func(text []byte, r *rand.Rand) []byte { // of a text that was read
		_, start, err := ledger.Blame(1 + r.Int64N(12))
		require.NoError(t, err)
		read, err := Origins(log, start)
		require.NoError(t, err)
		at := int(read[r.IntN(len(read))].Offset)
		return append(text[:at:at], bytes.Replace(text[at:], []byte([]string{"red", "blue"}[r.IntN(2)]), []byte("disc"), 1)...)
	}
	chained, metrics, set := filepath.Join(log, record.ChainName), filepath.Join(log, "metrics.jsonl"), filepath.Join(log, "run.yaml")
	plants := []plant{
		{texts, word, "samples"}, {texts, word, "samples"}, {texts, word, "samples"}, {texts, word, "samples"},
		{set, digit(`lr: `), "setting optimizer.lr"}, {set, digit(`decay_steps: `), "setting schedule.decay_steps"},
		{set, digit(`interval: `), "setting "},
		{metrics, digit(`"loss":`), "metrics: loss"}, {metrics, digit(`"grad_norm":`), "metrics: gradient norm"},
		{metrics, digit(`"lr":`), "metrics: learning rate"}, {metrics, without, "metrics"},
		{chained, digit(`"loss":`), "chain"}, {chained, digit(`"samples":"[a-f]*`), "chain"}, {chained, without, "chain"},
		{chained, digit(`"link":"[a-f]*`), "chain"}, {chained, digit(`"manifest":"[a-f]*`), "chain"},
		{filepath.Join(entries[0].Path, checkpoint.ManifestName), flipped, "the checkpoint of step"},
	}
	for i := range 3 {
		plants = append(plants, plant{shards[i%len(shards)], flipped, "the checkpoint of step"})
	}
	require.Len(t, plants, 20)
	for i, p := range plants {
		planted(t, log, i, p)
	}
	forged(t, log, shards[0])
	require.NoError(t, os.RemoveAll(entries[len(entries)-1].Path))
	gone := audited(t, log, AuditOptions{Steps: 99, Within: 2})
	require.Less(t, gone.Can, 12)
	require.Contains(t, strings.Join(gone.Notes, "\n"), "cannot be trained again")
	require.NoError(t, os.Remove(texts))
	gone = audited(t, log, AuditOptions{Steps: 2})
	require.Contains(t, strings.Join(gone.Damaged, "\n"), "texts.jsonl")
	require.NoError(t, os.Remove(chained))
	_, err = Audit(context.Background(), log, AuditOptions{Steps: 2, Progress: io.Discard})
	var code exit.Error
	require.ErrorAs(t, err, &code)
	require.Equal(t, exit.Corrupt, code.Code)
}

// planted changes a file, audits, and puts the file back.
func planted(t *testing.T, log string, seed int, p plant) {
	t.Helper()
	text, err := os.ReadFile(p.file)
	require.NoError(t, err)
	changed := p.change(text, rand.New(rand.NewPCG(7, uint64(seed))))
	require.NotEqual(t, text, changed)
	require.NoError(t, os.WriteFile(p.file, changed, 0o600))
	a := audited(t, log, AuditOptions{Steps: 3, Seed: uint64(seed)})
	found := false
	for _, d := range a.Differ {
		found = found || strings.HasPrefix(d.What, p.found)
	}
	for _, d := range a.Damaged {
		found = found || strings.HasPrefix(d, p.found)
	}
	require.True(t, found, "%d: %s of %s: %+v", seed, p.found, p.file, a)
	require.NoError(t, os.WriteFile(p.file, text, 0o600))
}

// forged changes a weight and all hashes of its checkpoint, and then the chain's too: the first is seen in the chain,
// and the second when the steps behind are trained again.
func forged(t *testing.T, log, shard string) {
	t.Helper()
	dir := filepath.Dir(shard)
	manifest, sums := filepath.Join(dir, checkpoint.ManifestName), filepath.Join(dir, "manifest.sha256")
	files := []string{shard, manifest, sums, filepath.Join(log, record.ChainName)}
	was := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		was[f] = b
	}
	sha := func(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }
	put := func(f string, b []byte) { require.NoError(t, os.WriteFile(f, b, 0o600)) }
	other := bytes.Clone(was[shard])
	for i := len(other) / 2; i < len(other); i += 4 {
		other[i] ^= 64
	}
	listed := bytes.ReplaceAll(was[manifest], []byte(sha(was[shard])), []byte(sha(other)))
	put(shard, other)
	put(manifest, listed)
	put(sums, bytes.ReplaceAll(was[sums], []byte(sha(was[manifest])), []byte(sha(listed))))
	a := audited(t, log, AuditOptions{Steps: 99})
	require.Empty(t, a.Damaged)
	require.Equal(t, "checkpoint", a.Differ[0].What, fmt.Sprint(a.Differ))
	c := record.OpenChain(log, 1)
	links, err := record.ReadChain(log)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Empty(t, links.Taken)
	put(files[3], was[files[3]])
	links, err = record.ReadChain(log)
	require.NoError(t, err)
	c = record.OpenChain(log, 0)
	for _, b := range links.Began {
		c.Begin(b)
	}
	for _, x := range links.Taken {
		c.Take(x)
		if m := links.Saved[x.Step]; m == sha(was[manifest]) {
			c.Save(x.Step, listed)
		} else if m != "" {
			text, err := os.ReadFile(filepath.Join(checkpoint.StepDir(filepath.Dir(dir), x.Step), checkpoint.ManifestName))
			require.NoError(t, err)
			c.Save(x.Step, text)
		}
	}
	require.NoError(t, c.Close())
	a = audited(t, log, AuditOptions{Steps: 99})
	require.NotEmpty(t, a.Differ)
	require.True(t, slices.ContainsFunc(a.Differ, func(d Differing) bool { return d.What != "weights of the checkpoint" }), fmt.Sprint(a.Differ))
	require.Positive(t, a.Differ[0].Step)
	for f, b := range was {
		put(f, b)
	}
}

// TestAuditKinds: so do runs of diffusion, of preferences beside a reference and of answers that are drawn, also by
// weights of an older version, whose audit draws and judges them again.
func TestAuditKinds(t *testing.T) {
	t.Parallel()
	kept := []string{"checkpoint.interval=2", "checkpoint.keep=9"}
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	captionWords(t, filepath.Join(dir, "text"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	for kind, train := range map[string]func(log string) string{
		"diffusion": func(log string) string {
			encodersRun(t, fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml")), dir, filepath.Join(dir, "text"),
				append(kept, "log.dir="+log, "diffusion.encoders=live", "diffusion.train_text_encoder=true")...)
			return log
		},
		"answers": func(log string) string {
			policyRun(t, t.TempDir(), append(kept, "log.dir="+log, "checkpoint.dir="+filepath.Join(log, "saved"), "train.steps=5",
				"rollout.staleness=1", "objective.kl=0.1")...)
			return log
		},
		"preferences": func(string) string {
			dir := t.TempDir()
			writePairs(t, dir, false)
			_, log := pairsRun(t, dir, append(kept, "checkpoint.dir="+filepath.Join(t.TempDir(), "saved"), "train.steps=5")...)
			return log
		},
	} {
		log := train(filepath.Join(t.TempDir(), "log"))
		a := audited(t, log, AuditOptions{Steps: 99})
		require.Empty(t, a.Differ, kind)
		require.Empty(t, a.Damaged, kind)
		require.Equal(t, a.Steps, len(a.Drawn), kind)
		require.Equal(t, a.Steps, a.Read, kind)
	}
}
