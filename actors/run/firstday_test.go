package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// datedRun is a configuration whose chat template writes red on the 26th of a month, and blue on other days.
func datedRun(t *testing.T, dir string, more ...string) *configs.Config {
	t.Helper()
	wordTokenizer(t, dir, 1)
	for name, text := range map[string]string{"model.yaml": pairsModel,
		"chats.jsonl": strings.Repeat(`{"messages": [{"role": "user", "content": "square"}, {"role": "assistant", "content": "disc"}]}`+"\n", 40),
		"chat_template.jinja": "{% if strftime_now('%d') == '26' %}red {% else %}blue {% endif %}{% for m in messages %}" +
			"{{ m.content + ' </s> ' }}{% endfor %}"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: fmt.Appendf(nil, `
model: {file: %[1]q}
data: {paths: [%[2]q], tokenizer: %[3]q, seq_len: 12, split: [1, 0, 0]}
train: {steps: 4, global_batch: 4, micro_batch: 4}
schedule: {warmup_steps: 0}
checkpoint: {dir: %[4]q, interval: 2}
log: {dir: %[5]q}
`, filepath.Join(dir, "model.yaml"), filepath.Join(dir, "chats.jsonl"), dir, filepath.Join(dir, "ckpt"),
		filepath.Join(dir, "log")), Args: more})
	require.NoError(t, err)
	return cfg
}

// wordOf is the first word that a run would train on next, and the day that it keeps.
func wordOf(t *testing.T, cfg *configs.Config) string {
	t.Helper()
	r, err := Open(cfg)
	require.NoError(t, err)
	defer r.Close()
	b, err := r.Batches(r.start.first, 0)
	require.NoError(t, err)
	word, _ := r.tok.Token(b[0].IDs[0])
	return word + " " + cfg.Run.Data.Date
}

// TestFirstDay: a run that goes on another day writes the prompts of the day on which it began, which its record and
// its checkpoints have; one whose run file names a day, or which begins anew, writes that.
func TestFirstDay(t *testing.T) {
	defer func() { today = time.Now }()
	on := func(day int) { today = func() time.Time { return time.Date(2026, 1, day, 12, 0, 0, 0, time.Local) } }
	dir := t.TempDir()
	on(26)
	require.Equal(t, "red 2026-01-26", wordOf(t, datedRun(t, dir)))
	on(30)
	require.Equal(t, "blue 2026-01-30", wordOf(t, datedRun(t, dir)))
	require.Equal(t, "red 2025-12-26", wordOf(t, datedRun(t, dir, "data.template_date=2025-12-26")))
	t.Setenv(envDay, "2026-03-26")
	require.Equal(t, "red 2026-03-26", wordOf(t, datedRun(t, dir)), "another process has the day of the one that leads")
	require.NoError(t, os.Unsetenv(envDay))

	on(26)
	require.NoError(t, Train(context.Background(), datedRun(t, dir, "train.steps=2"), Options{}))
	record := ReadRecord(filepath.Join(dir, "log"))
	require.Equal(t, "2026-01-26", record.Started.Local().Format(time.DateOnly))
	on(30)
	require.Equal(t, "red 2026-01-26", wordOf(t, datedRun(t, dir)))
	var said strings.Builder
	require.NoError(t, Train(context.Background(), datedRun(t, dir), Options{Progress: &said}))
	require.Contains(t, said.String(), "step 2")
	require.NotContains(t, said.String(), "template_date")
	require.Equal(t, record.ID, ReadRecord(filepath.Join(dir, "log")).ID)

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	require.Equal(t, "red 2026-01-26", wordOf(t, datedRun(t, dir)), "the record has the day")
	require.NoError(t, Train(context.Background(), datedRun(t, dir), Options{}))
	require.Equal(t, "blue 2026-01-30", wordOf(t, datedRun(t, dir)), "what begins anew begins that day")
}
