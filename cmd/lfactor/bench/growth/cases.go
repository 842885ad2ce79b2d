package growth

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

const (
	tokenizer = "data tokenizer texts --to tok --vocab 384 --sample 64KiB"
	trained   = tokenizer + "; train run.yaml"
	over      = " model.overrides."
	pairs     = "attention's work is a part of it, and grows with the square of the tokens"
	caches    = "a recorded model of thousands of layers is larger than the caches, and much of the work is a look at its maps"
	everyone  = "ranks send their parts of sums to each other, so messages grow with the square of the ranks"
	quadratic = "matrices of a layer grow with the square of its width"
)

// Cases are all verbs and sizes that are measured.
var Cases = []Case{
	{Verb: "check", Axis: "layers", From: 64, Make: small, Before: tokenizer, Run: "config check run.yaml" + over + "num_hidden_layers={n}"},
	{Verb: "check", Axis: "experts", From: 64, Make: experts, Before: tokenizer, Run: "config check run.yaml" + over + "num_experts={n}"},
	{Verb: "plan", Axis: "layers", From: 64, Make: small, Run: "plan run.yaml" + over + "num_hidden_layers={n}"},
	{Verb: "plan", Axis: "ranks", From: 16, Make: small, Run: "plan run.yaml plan.dp={n} train.global_batch={n}"},
	{Verb: "plan", Axis: "microbatches", From: 64, Make: small, Run: "plan run.yaml train.global_batch={n}"},
	{Verb: "plan", Axis: "hosts", From: 4, Make: small, Run: "plan run.yaml --cluster h100 --hosts {n}x8 train.global_batch=1024"},
	{Verb: "sim", Axis: "layers", From: 32, Make: small, Run: "sim run.yaml --cluster h100 plan.pp=4" + over + "num_hidden_layers={n}"},
	{Verb: "sim", Axis: "ranks", From: 16, Make: small, Run: "sim run.yaml --cluster h100 plan.dp={n} train.global_batch={n}"},
	{Verb: "sim", Axis: "stages", From: 8, Most: 8, Make: small, Run: "sim run.yaml --cluster h100 plan.pp={n} train.global_batch=64" + over + "num_hidden_layers=1024"},
	{Verb: "sim", Axis: "microbatches", From: 64, Make: small, Run: "sim run.yaml --cluster h100 plan.pp=4 train.global_batch={n}" + over + "num_hidden_layers=8"},
	{Verb: "sim", Axis: "experts", From: 32, Make: experts, Run: "sim run.yaml --cluster h100 plan.dp=8 plan.ep=8 train.global_batch=8" + over + "num_experts={n}"},
	{Verb: "sim", Axis: "events", From: 50, Make: small, Run: "sim run.yaml --cluster h100 plan.pp=2 train.global_batch=64 --steps {n}"},
	{Verb: "sim", Axis: "adapters", From: 32, Make: small, Run: "sim run.yaml --cluster h100 lora.rank=4" + over + "num_hidden_layers={n}", Time: 1.1, Why: caches},
	{Verb: "days", Axis: "hosts", From: 64, Make: small, Run: "sim days 20 run.yaml --cluster h100 --hosts {n} --mtbf 5000h plan.dp={8n} train.global_batch={8n}"},
	{Verb: "train", Axis: "layers", From: 32, Make: small, Before: tokenizer, Run: "train run.yaml" + over + "num_hidden_layers={n}"},
	{Verb: "train", Axis: "hidden", From: 256, Make: small, Before: tokenizer, Run: "train run.yaml" + over + "hidden_size={n}", Time: 2, Memory: 2, Why: quadratic},
	{Verb: "train", Axis: "tokens", From: 8192, Make: small, Before: tokenizer, Run: "train run.yaml data.seq_len={n}", Time: 2, Why: pairs},
	{Verb: "train", Axis: "vocabulary", From: 32 << 10, Make: small, Before: tokenizer, Run: "train run.yaml" + over + "vocab_size={n}"},
	{Verb: "train", Axis: "experts", From: 64, Make: experts, Before: tokenizer, Run: "train run.yaml" + over + "num_experts={n}"},
	{Verb: "train", Axis: "microbatches", From: 128, Make: small, Before: tokenizer, Run: "train run.yaml train.global_batch={n}"},
	{Verb: "train", Axis: "ranks", From: 4, Make: small, Before: tokenizer, Run: "train run.yaml plan.dp={n} train.global_batch={n} plan.zero=1", Time: 2, Memory: 2, Why: everyone},
	{Verb: "train", Axis: "steps", From: 100, Make: small, Before: tokenizer, Run: "train run.yaml train.steps={n} checkpoint.interval=100000"},
	{Verb: "train", Axis: "adapters", From: 32, Make: small, Before: tokenizer, Run: "train run.yaml lora.rank=4" + over + "num_hidden_layers={n}"},
	{Verb: "train", Axis: "shards", From: 64, Make: func(dir string, n int) error { return runOver(dir, n, 8*n) }, Before: tokenizer, Run: "train run.yaml"},
	{Verb: "resume", Axis: "layers", From: 32, Make: small, Before: trained + over + "num_hidden_layers={n}", Run: "train run.yaml train.steps=2" + over + "num_hidden_layers={n}"},
	{Verb: "resume", Axis: "steps", From: 100, Most: 6, Make: small, Before: tokenizer + "; train run.yaml train.steps={n} checkpoint.interval=100000", Run: "train run.yaml train.steps={n}"},
	{Verb: "convert", Axis: "layers", From: 32, Make: small, Before: trained + over + "num_hidden_layers={n}", Run: "ckpt convert ck out"},
	{Verb: "verify", Axis: "layers", From: 32, Make: small, Before: trained + over + "num_hidden_layers={n}", Run: "ckpt verify ck"},
	{Verb: "tables", Axis: "steps", From: 100, Make: small, Before: tokenizer + "; train run.yaml train.steps={n} checkpoint.interval=100000", Run: "tables runs/latest"},
	{Verb: "tokenizer", Axis: "documents", From: 1000, Make: corpus, Run: "data tokenizer texts --to tok --vocab 2000"},
	{Verb: "lint", Axis: "documents", From: 4000, Make: corpus, Run: "data lint texts"},
	{Verb: "stat", Axis: "documents", From: 4000, Make: corpus, Run: "data stat texts"},
	{Verb: "lint", Axis: "shards", From: 100, Make: shards, Run: "data lint texts"},
	{Verb: "reshard", Axis: "documents", From: 4000, Make: corpus, Run: "data reshard texts/*.jsonl --to out --as parquet"},
	{Verb: "tokenize", Axis: "documents", From: 2000, Make: corpus, Before: tokenizer, Run: "data tokenize --input texts --hf-tokenizer-path tok --output-prefix out"},
	{Verb: "data run", Axis: "documents", From: 1000, Make: recipe, Run: "data run recipe.yaml"},
	{Verb: "data run", Axis: "shards", From: 50, Make: func(dir string, n int) error { return recipes(dir, n, 4*n) }, Run: "data run recipe.yaml"},
	{Verb: "serve", Axis: "requests", From: 32, Make: small, Before: trained, Run: "serve ck --name m --port {port}",
		Ask: &Ask{Ready: "/v1/models", Path: "/v1/completions", Body: `{"model":"m","prompt":"bab","max_tokens":16}`, Times: func(n int) int { return n }}},
	{Verb: "serve", Axis: "layers", From: 32, Make: small, Before: trained + over + "num_hidden_layers={n}", Run: "serve ck --name m --port {port}",
		Ask: &Ask{Ready: "/v1/models", Path: "/v1/completions", Body: `{"model":"m","prompt":"bab","max_tokens":16}`, Times: func(int) int { return 1 }}},
}

const model = `{"model_type": "%s", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
"intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 65536, "rms_norm_eps": 1e-5, "rope_theta": 10000%s}`

const settings = `model: {path: model, init: random}
data: {paths: [texts], tokenizer: tok, seq_len: 64}
train: {steps: 1, global_batch: 2, micro_batch: 1}
checkpoint: {dir: ck, interval: 1}
`

// small is a run of a Llama of two layers on a thousand documents.
func small(dir string, _ int) error { return runOver(dir, 4, 1000) }

// runOver is the same on so many shards and documents.
func runOver(dir string, shards, documents int) error {
	return files(dir, shards, documents, map[string]string{"run.yaml": settings, "model/config.json": fmt.Sprintf(model, "llama", "")})
}

// experts is a run of a mixture of experts.
func experts(dir string, _ int) error {
	return files(dir, 4, 1000, map[string]string{"run.yaml": settings, "model/config.json": fmt.Sprintf(model, "qwen3_moe",
		`, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 16, "decoder_sparse_step": 1`)})
}

// corpus is so many documents in four files, shards so many files of eight.
func corpus(dir string, n int) error { return files(dir, 4, n, nil) }
func shards(dir string, n int) error { return files(dir, n, 8*n, nil) }

const steps = `inputs: [{name: a, path: "texts/*.jsonl"}]
output: out
steps: [{step: exact_dedup}, {step: minhash_dedup}]
`

// recipe is one of two kinds of copies, over so many documents.
func recipe(dir string, n int) error { return recipes(dir, 4, n) }
func recipes(dir string, shards, n int) error {
	return files(dir, shards, n, map[string]string{"recipe.yaml": steps})
}

// files writes texts, the same each time, and what else there is.
func files(dir string, shards, documents int, also map[string]string) error {
	for name, text := range also {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "texts"), 0o755); err != nil {
		return err
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for s := range shards {
		if err := texts(filepath.Join(dir, "texts", fmt.Sprintf("%06d.jsonl", s)), documents*(s+1)/shards-documents*s/shards, draw); err != nil {
			return err
		}
	}
	return nil
}

// texts writes documents of 80 to 120 of 3,000 words.
func texts(path string, n int, draw *rand.Rand) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	for range n {
		var text strings.Builder
		for range 80 + draw.IntN(41) {
			word := draw.IntN(3000)
			for range 2 + word%5 {
				text.WriteByte("abdegiklmnoprstu"[word&15])
				word = word*7 + 3
			}
			text.WriteByte(' ')
		}
		fmt.Fprintf(out, "{\"text\": %q}\n", text.String())
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return f.Close()
}
