// Package megatron knows the arguments of Megatron-LM, and those that LoongForge adds: which have no effect
// here, which must have one value, which are refused, and the forms of those whose value is more than a
// word. Arguments that mean a key of ours stand in the tags of configs.Run and configs.Model.
package megatron

import "github.com/lfactor/lfactor/configs/source"

// IdleFlags change nothing here: they choose among implementations, tune what this runtime does not have, or
// ask for what it always does. They are accepted so that a launch script works as it is.
var IdleFlags = source.Set(
	// sparse attention: kernels, and a rotation of the indexer's numbers that changes no score
	"use-dsa-fused", "use-dsa-sp-first", "absorb-backend", "dsa-indexer-rotate-activation",
	// torchrun's
	"nproc-per-node", "nnodes", "node-rank", "master-addr", "master-port",
	// communication
	"distributed-backend", "distributed-timeout-minutes", "overlap-grad-reduce", "overlap-param-gather",
	"overlap-param-gather-with-optimizer-step", "tp-comm-overlap", "tp-comm-overlap-bootstrap-backend",
	"no-async-tensor-model-parallel-allreduce", "use-megatron-fsdp", "suggested-communication-unit-size",
	// gradients are reduced behind the backward anyway; plan.bucket_bytes has the size of a bucket in bytes
	"ddp-bucket-size", "ddp-num-buckets", "ddp-pad-buckets-for-high-nccl-busbw", "ddp-average-in-collective",
	"disable-turn-off-bucketing", "reduce-variable-seq-shape-p2p-comm", "align-grad-reduce",
	"no-align-grad-reduce",
	// kernels
	"attention-backend", "use-flash-attn", "attention-softmax-in-fp32", "no-masked-softmax-fusion",
	"no-bias-gelu-fusion",
	"no-bias-swiglu-fusion", "no-bias-dropout-fusion", "no-rope-fusion", "apply-rope-fusion",
	"no-gradient-accumulation-fusion",
	"cross-entropy-loss-fusion", "cross-entropy-fusion-impl", "transformer-impl", "use-mcore-models",
	"enable-experimental",
	"enable-fa-within-mla", "use-fp32-dtype-for-param-pattern",
	// memory: state that waits on the host always comes and goes beside the update
	"empty-unused-memory-level", "overlap-cpu-optimizer-d2h-h2d", "use-precision-aware-optimizer",
	"use-cpu-initialization",
	// tensors that are named are moved whatever their size
	"fine-grained-activation-offloading", "min-offloaded-tensor-size",
	"no-use-deepspeed-cpu-adam", "offload-optimizer", "offload-optimizer-percent", "manual-gc",
	"manual-gc-interval",
	// data loading
	"num-workers", "sft-num-preprocess-workers", "dataloader-type", "dataloader-prefetch-factor",
	"dataloader-save",
	"no-create-attention-mask-in-dataloader", "use-fast-tokenizer", "packing-buffer-size", "sft-sort-batch",
	"variable-seq-lengths", "use-fixed-seq-lengths", "no-mmap-bin-files",
	// images: sizes, tiles and frames are those of data.processor's files, conversations those of data.template
	"min-pixels", "max-pixels", "frame-min-pixels", "frame-max-pixels", "video-max-pixels", "fps",
	"fps-min-frames", "fps-max-frames",
	"image-resolution", "min-num-frame", "max-num-frame", "dynamic-image-size", "min-dynamic-patch",
	"max-dynamic-patch", "use-thumbnail",
	"normalize-type", "pad2square", "down-sample-ratio", "force-image-size", "patch-size", "task-encoder",
	"language-model-type",
	"add-question-in-pretrain", "training-rice-vl-max-answer-length",
	// packing of images: up to data.seq_len and data.images_max, within the documents read ahead
	"max-packed-tokens", "max-buffer-size", "replacement", "strict-mode", "group-by-length", "use-packed-ds",
	"save-dataset-state",
	"data-shuffle-buffer-size", "data-max-samples-per-sequence",
	// replicas of an encoder always share out images by their work
	"use-vit-dp-balance", "vlm-dp-balance-warmup-iters", "dp-balance-verbose",
	"dp-balance-max-len-ratio-vlm", "dp-balance-max-len-ratio-vit",
	"dp-balance-trigger-threshold-vlm", "dp-balance-trigger-threshold-vit", "full-hetero-dp-cpu-offload",
	// what every dense family here has anyway
	"swiglu", "disable-bias-linear", "no-position-embedding", "group-query-attention",
	"use-rotary-position-embeddings",
	"make-vocab-size-divisible-by",
	// experts: rows go straight to the ranks that need them, all experts of a rank are one product, and
	// logits' losses are in the log
	"moe-grouped-gemm", "moe-permute-fusion", "moe-enable-deepep", "moe-shared-expert-overlap",
	"moe-router-fusion", "moe-per-layer-logging",
	// where microbatches overlap, weight gradients always run behind exchanges
	"delay-wgrad-compute",
	"moe-use-legacy-grouped-gemm", "moe-router-padding-for-fp8", "moe-router-padding-for-quantization",
	"moe-deepep-num-sms", "moe-extended-tp",
	"should-get-embedding-weights-for-mtp", "moe-token-dispatcher-type", "moe-flex-dispatcher-backend",
	"moe-pad-expert-input-to-capacity",
	// weights are gathered in the model's precision, and rounded where they are multiplied
	"fp8-param-gather", "fp8-interval",
	// checks and logs that are always on, or are not needed
	"no-check-for-nan-in-loss-and-grad", "check-weight-hash-across-dp-replicas-interval",
	"log-timers-to-tensorboard",
	"log-memory-to-tensorboard", "log-validation-ppl-to-tensorboard", "log-throughput", "log-params-norm",
	"log-num-zeros-in-grad", "detail-log-interval", "no-detail-log", "log-memory-stats", "timing-log-level",
	"wandb",
	// checkpoints always hold everything, are written in the background, and load into any plan
	"ckpt-format", "ckpt-fully-parallel-load", "ckpt-fully-parallel-save", "async-save",
	"dist-ckpt-strictness",
	"no-save-optim", "no-save-rng", "exit-on-missing-checkpoint", "no-strict-fsdp-dtensor-load",
	"allow-missing-adapter-checkpoint",
)

// OnlyFlag is a flag that may stand in a script with values that ask for nothing special.
type OnlyFlag struct {
	Values []string
	Why    string // what is wrong with any other value
}

// OnlyFlags are those that must have one of a few values.
var OnlyFlags = map[string]*OnlyFlag{
	"tokenizer-type": {[]string{"HFTokenizer", "HuggingFaceTokenizer", "NullTokenizer"},
		"HFTokenizer is read, or with NullTokenizer none: set data.tokenizer to a directory with tokenizer.json"},
	"position-embedding-type": {[]string{"rope"},
		"positions are those of the model's family, rotary embeddings in all that LoongForge has"},
	"normalization": {[]string{"RMSNorm"}, "norms are those of the model's family, RMSNorm in all that LoongForge has"},
	"full-attention-interval": {[]string{"4"},
		"one layer in four attends; set model.overrides.layer_types for other patterns"},
	"attention-dropout": {[]string{"0"}, "dense families here have no dropout"},
	"hidden-dropout":    {[]string{"0"}, "dense families here have no dropout"},
	"rotary-seq-len-interpolation-factor": {[]string{"1"},
		"set model.overrides.rope_scaling={rope_type: linear, factor: …} instead"},
	"moe-router-dtype":  {[]string{"fp32"}, "logits of routers are float32"},
	"main-params-dtype": {[]string{"fp32"}, "master weights are kept in fp32"},
	"main-grads-dtype":  {[]string{"fp32"}, "gradients are kept in fp32"},
	"trainable-modules": {[]string{"all"},
		"freeze parts instead: +model.image_encoder.freeze=True, or freeze: [visual.*]"},
	"fp8-margin":            {[]string{"0"}, "scales bring the greatest number to the format's greatest"},
	"fp4-format":            {[]string{"e2m1"}, "numbers of four bits are e2m1"},
	"padding-side":          {[]string{"right"}, "samples are padded on the right"},
	"sft-data-mix-strategy": {[]string{"concat"}, "give weights in data.paths instead"},
}

// RefusedFlags ask for something that would be silently missing.
var RefusedFlags = map[string]string{
	"fp8":          "say by which recipe: train.low_precision=block_pow2 is TransformerEngine's blockwise",
	"no-fp8-wgrad": "a weight is rounded in all three products or in none: train.low_precision_keep has patterns",
	"use-rope-scaling": "set model.overrides.rope_scaling={rope_type: llama3, …} " +
		"instead",
	"rope-scaling-factor": "set model.overrides.rope_scaling={rope_type: llama3, " +
		"factor: …} instead",
	"num-layers-per-virtual-pipeline-stage": "say how many stages a rank has: " +
		"--num-virtual-stages-per-pipeline-rank",
	"custom-virtual-pipeline-layers": "set plan.virtual_stages, and the layers of every stage in " +
		"plan.layers",
	"is-tokenized-data": "tokenized datasets are not read: use text, or Megatron's " +
		".bin/.idx",
	"sft-data-streaming": "data is always read as training goes: remove the flag, " +
		"the order is that of data.shuffle",
	"enable-ema":                "no moving average of weights is kept",
	"lr-warmup-samples":         "set schedule.warmup_steps instead",
	"lr-decay-samples":          "set schedule.decay_steps instead",
	"rampup-batch-size":         "the batch size does not change during a run",
	"freeze-parameters-regex":   "freeze takes patterns with *: --freeze-parameters",
	"additional-special-tokens": "add them to the tokenizer's own files",
	"chat-template-kwargs":      "templates get no arguments",
}
