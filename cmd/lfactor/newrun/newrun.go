// Package newrun is the verb init, which writes a new run file.
package newrun

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
)

// Command is lfactor init: a new run file.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "init [DIR]", Short: "Write a run file to start from",
		Long: "Writes run.yaml into DIR, by default the folder at hand. Recipes:\n" + recipes(),
		Args: cobra.MaximumNArgs(1), Example: "  lfactor init --recipe lora my-run\n  lfactor init --list"}
	recipe := c.Flags().String("recipe", "", "one of the recipes, which name a published model")
	list := c.Flags().Bool("list", false, "list the recipes")
	template := c.Flags().String("template", "pretrain",
		"in place of a recipe, for a model in a folder of yours: pretrain or sft")
	c.MarkFlagsMutuallyExclusive("recipe", "template", "list")
	_ = c.RegisterFlagCompletionFunc("recipe", names) // the flag is there
	c.RunE = func(c *cobra.Command, args []string) error {
		if *list {
			return cli.Emit(c, configs.Recipes(), func(w io.Writer) { fmt.Fprintln(w, recipes()) })
		}
		dir := "."
		if len(args) == 1 {
			dir = args[0]
		}
		text, ok := map[string]string{"pretrain": pretrainTemplate, "sft": sftTemplate}[*template]
		if *recipe != "" {
			r, err := configs.RecipeNamed(*recipe)
			if err != nil {
				return err
			}
			text, ok = r.Text, true
		}
		if !ok {
			return exit.Usagef("--template %s: want pretrain or sft", *template)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		path := filepath.Join(dir, "run.yaml")
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return fmt.Errorf("%s: %w; an existing run file is not overwritten", path, err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			return err
		}
		return cli.Emit(c, map[string]string{"path": path}, func(io.Writer) {
			fmt.Fprintf(os.Stderr, "wrote %s; edit it, then: lfactor config check %s && lfactor plan %s "+
				"&& lfactor train %s\n", path, path, path, path)
		})
	}
	return c
}

// recipes has a line a recipe.
func recipes() string {
	var lines []string
	for _, r := range configs.Recipes() {
		lines = append(lines, fmt.Sprintf("  %-10s %s", r.Name, r.Doc))
	}
	return strings.Join(lines, "\n")
}

// names completes recipes.
func names(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
	for _, r := range configs.Recipes() {
		out = append(out, r.Name+"\t"+r.Doc)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

const pretrainTemplate = `# A run of lfactor train. Every key: lfactor config explain KEY
model:
  path: path/to/hf-model        # Hugging Face directory: config.json, tokenizer.json, weights
data:
  kind: auto                    # the files tell; or text, jsonl, parquet, megatron
  paths: [path/to/corpus]
  split: [98, 2, 0]
  seq_len: 1024
train:
  steps: 1000
  global_batch: 8
  micro_batch: 1
  precision: bf16
  eval_interval: 100
optimizer:
  lr: 1e-4
schedule:
  kind: cosine
  warmup_steps: 50
plan:
  pp: 1
  dp: 1
  tp: 1
checkpoint:
  dir: checkpoints
  interval: 200
  save_hf: true
`

const sftTemplate = `# A run of lfactor train: supervised fine-tuning with adapters. Every key: lfactor config explain KEY
model:
  path: path/to/hf-model        # with a chat template in tokenizer_config.json
data:
  kind: chat
  paths: [path/to/conversations.jsonl]   # OpenAI messages, sharegpt or alpaca
  split: [98, 2, 0]
  seq_len: 2048
  packing: true
train:
  phase: sft
  steps: 500
  global_batch: 16
  micro_batch: 1
  precision: bf16
  eval_interval: 50
lora:
  rank: 16
  alpha: 32
optimizer:
  lr: 2e-4
schedule:
  kind: cosine
  warmup_fraction: 0.03
checkpoint:
  dir: checkpoints
  interval: 100
  save_hf: true
`
