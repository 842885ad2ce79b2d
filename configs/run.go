// Package configs says what can be set, where it was set, and whether it makes sense.
//
// A setting is a dotted key, plan.tp or train.steps. The structs of this package with their tags are the
// only description of the keys: decoding, explanations, the JSON schema, comparison, Megatron's flags and
// the rules of resuming all read the one table made from them. A value comes from a default, a model file,
// the run file, an override (key=value) or a flag, later ones winning, and remembers which.
//
// The architecture of a model is described by Model; published ones are embedded under models/.
//
//lfvet:files a section of run files or another tool's words a file, on one loader
package configs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/lfactor/lfactor/configs/source"
)

// Run is everything a run file can say. Tags: key is the YAML key, default a YAML value, class what resuming
// allows (see Class), oneof the alternatives, min and max bounds, flag the Megatron flags with that meaning
// ("name" passes its value on, "name=value" takes none), from translates a flag's values, doc one sentence.
type Run struct {
	Device     string     `key:"device" default:"cpu" oneof:"cpu|auto|cuda|cuda:NUMBER|cuda:UUID|xpu|xpu:PATH" class:"replan" doc:"Where kernels run: the processor; NVIDIA GPUs, which a process's ranks take in turn, or one of them; an accelerator by a plug-in (LFACTOR_XPU or PATH); auto is a GPU where there is one. LFACTOR_DEVICE sets it too."`
	Strict     bool       `key:"device_strict" default:"false" class:"free" flag:"strict" doc:"Refuse operations that the device does not have, instead of running them on the processor with copies there and back."`
	Model      ModelRef   `key:"model"`
	Data       Data       `key:"data"`
	Train      Train      `key:"train"`
	Optimizer  Optimizer  `key:"optimizer"`
	Schedule   Schedule   `key:"schedule"`
	Plan       Plan       `key:"plan"`
	LoRA       LoRA       `key:"lora"`
	Diffusion  Diffusion  `key:"diffusion"`
	Policy     Policy     `key:"policy"`
	Objective  Objective  `key:"objective"`
	Rollout    Rollout    `key:"rollout"`
	Reward     Reward     `key:"reward"`
	Freeze     []string   `key:"freeze" class:"fixed" flag:"freeze-parameters" doc:"Parameters that are not trained, as patterns with * on their full names."`
	Checkpoint Checkpoint `key:"checkpoint"`
	Log        Log        `key:"log"`
}

// ModelRef names the architecture and where its weights come from. Exactly one of Path, Name and File is set.
type ModelRef struct {
	Path string `key:"path" class:"fixed" doc:"Hugging Face directory: config.json, tokenizer and, unless model.init is random, weights; or a GGUF file; or hf://OWNER/NAME, or ms://OWNER/NAME of ModelScope, which is fetched where the cache has it not."`
	Name string `key:"name" class:"fixed" flag:"model-name" doc:"Published model by family/size, as in qwen/2.5-7b; lfactor config models lists them."`
	File string `key:"file" class:"fixed" doc:"Model file in YAML with the keys of model.overrides."`
	Init string `key:"init" default:"auto" oneof:"auto|random|load" class:"fixed" doc:"Initial weights: load takes them from model.path or checkpoint.load, random draws them from train.seed; auto loads if there are any."`
	// after apply, its text
	Description string `key:"description" class:"fixed" doc:"Architecture of one's own in YAML: a file, or its text (docs/descriptions.md). By itself it is the model, with the sizes that it gives; with model.path it says what the config.json there means."`
	Encoder     string `key:"encoder_path" class:"fixed" doc:"Hugging Face directory from which the vision tower's initial weights come: its own, or a larger model's that has it."`
	Decoder     string `key:"decoder_path" class:"fixed" doc:"Hugging Face directory from which a composed model's decoder takes its initial weights; rows of tokens that it does not have are drawn."`
}

// Check implements section. Settings below model.overrides are the fields of Model.
func (m *ModelRef) Check(at faults) {
	switch set := m.given(); {
	case set == 0 && m.Description != "":
	case set == 0:
		at.fault("model.path", "no model is given",
			"set model.path to a Hugging Face directory, or model.name to a published one, such as llama/3.2-1b")
	case set > 1:
		at.fault("model.path", "model.path, model.name and model.file exclude each other", "keep one of them")
	case m.Description != "" && m.Name != "":
		at.fault("model.description", "a published model has its own description", "keep one of it and model.name")
	}
}

// given counts the ways in which the model is named.
func (m *ModelRef) given() int {
	n := 0
	for _, v := range []string{m.Path, m.Name, m.File} {
		if v != "" {
			n++
		}
	}
	return n
}

// Data says what is read and how samples are made of it.
type Data struct {
	Kind        string       `key:"kind" default:"auto" oneof:"auto|@formats|chat|media|pairs|kto" class:"free" doc:"Format of the data: plain text files, JSON lines, Parquet columns, Megatron's .bin/.idx, chat messages, prompts, pairs of answers (preference, or pairs), judged answers (judged, or kto), similar texts, or samples of images and videos with conversations in webdataset shards. auto goes by the names and the content of the files, as lfactor data lint does; a file that looks like another format than is named here is an error."`
	Paths       []WeightPath `key:"paths" class:"fixed" flag:"data-path,train-data-path" doc:"Files, directories or patterns; {path, weight} mixes several in proportion; weight: {0: 0.8, 9000: 0.2} is another from that step on, and with linear: true changes evenly on the way to it. With {path, weight, name} the metrics have the loss and the tokens of each name too. Megatron's form is the prefix of a .bin/.idx pair."`
	Valid       []WeightPath `key:"valid" class:"fixed" flag:"valid-data-path" doc:"Data of validation runs; without it data.split sets some aside. Paths with one name are one set, and each set is evaluated by itself: [{path: news.jsonl, name: news}, {path: code.jsonl, name: code}]."`
	Split       []float64    `key:"split" default:"[100, 0, 0]" class:"fixed" flag:"split" doc:"Shares of training, validation and test documents, in proportion."`
	Tokenizer   string       `key:"tokenizer" class:"fixed" flag:"hf-tokenizer-path,tokenizer-model" doc:"Directory with tokenizer.json; by default that of model.path."`
	SeqLen      int          `key:"seq_len" default:"2048" min:"1" max:"16777216" class:"fixed" flag:"seq-length" unit:"tokens" doc:"Length of a sample."`
	Packing     bool         `key:"packing" default:"true" class:"fixed" flag:"packing-sft-data,packing-pretrain-data=true" doc:"Put several short documents or conversations in one sample; attention does not cross their borders."`
	TextKey     string       `key:"text_key" default:"text" class:"fixed" doc:"Field of a JSON line, or column of a Parquet file, that holds the text."`
	Messages    string       `key:"messages" default:"auto" oneof:"auto|@chats" class:"fixed" doc:"Shape of chat data."`
	MessageKey  string       `key:"message_key" class:"fixed" doc:"Field that holds the list of messages; by default the shape's own."`
	Dataset     []string     `key:"dataset" class:"fixed" flag:"sft-dataset,sft-train-dataset" doc:"Entry of data.dataset_config for each of data.paths, or one for all: under which keys conversations lie and what roles are called. Without it the files tell."`
	ValidSet    []string     `key:"valid_dataset" class:"fixed" flag:"sft-valid-dataset" doc:"The same for data.valid; by default the first of data.dataset."`
	Config      string       `key:"dataset_config" class:"fixed" flag:"sft-dataset-config" doc:"File with the entries that data.dataset names, as LoongForge's sft_dataset_config.yaml or LLaMA-Factory's dataset_info.json; LoongForge's own entries are taken without it: default, alpaca, extended_alpaca, sharegpt, openai, multimodal, multimodal_sharegpt."`
	SampleType  string       `key:"sample_type" class:"fixed" flag:"sample-type" doc:"Type of media samples, as multi_mix_qa or captioning; by default each sample tells."`
	Processor   string       `key:"processor" class:"fixed" flag:"hf-processor-path" doc:"Directory with preprocessor_config.json, which says how images become patches; by default the tokenizer's."`
	Template    string       `key:"template" class:"fixed" flag:"chat-template" doc:"Chat template: a Jinja file or a name, such as qwen, llama3 or internvl2_5; by default, and for names that end in -hf, the tokenizer's own."`
	Date        string       `key:"template_date" class:"fixed" doc:"Day that a chat template's strftime_now writes, as 2026-01-31; by default the day on which the run began, also where it goes on later. lfactor serve writes today."`
	Prompt      bool         `key:"train_on_prompt" default:"false" class:"fixed" flag:"train-on-prompt" doc:"Count the loss on user and system turns as well."`
	LastTurn    bool         `key:"last_turn_only" default:"false" class:"fixed" flag:"history-mask-loss" doc:"Count the loss on the last assistant turn only."`
	EODMask     bool         `key:"eod_mask_loss" default:"false" class:"fixed" flag:"eod-mask-loss" doc:"Do not count the loss on end-of-document tokens."`
	Shuffle     bool         `key:"shuffle" default:"true" class:"fixed" doc:"Read in a seeded order, a permutation of all samples; false reads files and documents as they come."`
	Seed        int          `key:"seed" default:"-1" class:"fixed" doc:"Seed of the order; -1 takes train.seed."`
	Quarantine  int          `key:"quarantine" default:"100" min:"0" class:"free" unit:"samples" doc:"Bad samples that are set aside before the run stops with exit code 4."`
	Pack        string       `key:"pack" default:"best-fit" oneof:"none|first-fit|best-fit|largest-fit|sequential|max-images" class:"fixed" flag:"packing-algorithm,energon-pack-algo" from:"balanced=best-fit,sequential_max_images=max-images" doc:"How whole documents or conversations are laid into samples, where data.packing is on; pretraining joins texts and needs none."`
	ImagesMax   int          `key:"images_max" default:"0" min:"0" class:"fixed" flag:"num-images-expected" unit:"media" doc:"Images and videos of a sample at most; 0 means any number."`
	ShardMix    int          `key:"shuffle_shards" default:"0" min:"0" class:"fixed" unit:"shards" doc:"Shuffle within windows as large as so many files, read in runs, for data that is slow to read at random; 0 shuffles all."`
	Readers     int          `key:"readers" default:"2" min:"1" max:"256" class:"free" doc:"Documents read, made tokens of, and whose images are decoded, at once. The data does not depend on it."`
	Balance     bool         `key:"balance" default:"false" class:"fixed" flag:"use-vlm-dp-balance" doc:"Give every data-parallel rank microbatches of the same work, by tokens and their squares, and with a vision encoder by patches too, instead of every dp-th."`
	Cost        []float64    `key:"balance_cost" default:"[]" class:"fixed" doc:"a, b and c of the work a·l² + b·l + c of a sample of l tokens, for data.balance; by default the model's width decides. A run with data.balance says what it measured."`
	DropLast    bool         `key:"drop_last" default:"false" class:"free" doc:"With train.epochs: leave out what the last pass leaves over where it does not fill a step, instead of filling the step up with padding. What answers are drawn to is left out always."`
	DropLong    bool         `key:"drop_long" default:"false" class:"fixed" flag:"enable-discard-sample" doc:"Leave out documents and conversations longer than data.seq_len, instead of cutting them."`
	LineMax     Bytes        `key:"line_max" default:"64MiB" min:"1" class:"fixed" doc:"Longest line or record that is read; longer ones are quarantined."`
	Filters     string       `key:"filters" class:"fixed" doc:"File with steps as a recipe of lfactor data run has them, none of which keeps state: documents that they drop are not learnt, and texts are learnt as they leave them."`
	Follow      bool         `key:"follow" default:"false" class:"fixed" doc:"data.paths names the manifest.jsonl of a data set that grows, which lfactor data ingest --follow writes: its generations are learnt one after the other, each once and in an order of its own, and the run waits for those that have not come."`
	Fingerprint string       `key:"fingerprint" default:"parts" oneof:"parts|full" class:"fixed" doc:"What tells whether a resumed run reads the same data: sizes and the start, middle and end of each file (64 KiB each; of folders of texts names and sizes), or all bytes, which takes reading them at the start."`
}

// Check implements section.
func (d *Data) Check(at faults) {
	if len(d.Cost) != 0 && (len(d.Cost) != 3 || min(d.Cost[0], d.Cost[1], d.Cost[2]) < 0) {
		at.fault("data.balance_cost", fmt.Sprintf("%v, want three numbers that are not negative", d.Cost),
			"leave it out to go by the model's width")
	}
	if _, err := time.Parse(time.DateOnly, d.Date); d.Date != "" && err != nil {
		at.fault("data.template_date", fmt.Sprintf("%q is no day", d.Date), "write it as 2026-01-31")
	}
	if len(d.Paths) == 0 {
		at.fault("data.paths", "no data is given", "name files or directories")
	}
	if d.Follow && (len(d.Paths) != 1 || len(d.Split) == 3 && d.Split[1]+d.Split[2] > 0) {
		at.fault("data.follow", "it wants one path, and no shares of it for validation: what has not come cannot be "+
			"divided", "name one manifest.jsonl, set data.split to [100, 0, 0], and use data.valid")
	}
	if len(d.Split) != 3 {
		at.fault("data.split", fmt.Sprintf("%d shares, want those of training, validation and test",
			len(d.Split)), "try [98, 2, 0]")
	}
	sum := 0.0
	for _, s := range d.Split {
		sum += s
		if s < 0 {
			at.fault("data.split", fmt.Sprintf("share %g is negative", s), "try [98, 2, 0]")
		}
	}
	if sum == 0 {
		at.fault("data.split", "the shares add up to nothing", "try [98, 2, 0]")
	}
	checkWeights(at, "data.paths", d.Paths)
	checkWeights(at, "data.valid", d.Valid)
	if named := Sets(d.Paths); d.Named() != nil && (slices.Contains(named, "") || d.Follow) {
		at.fault("data.paths", "some paths have a name and others have none, or data.follow has only one", "name all, or none")
	}
	if sets := Sets(d.Valid); len(sets) > 1 && slices.Contains(sets, "") {
		at.fault("data.valid", "some paths have the name of a set and others have none", "name all, or none")
	}
	if d.Prompt && d.LastTurn {
		at.fault("data.train_on_prompt", "excludes data.last_turn_only", "keep one of them")
	}
}

// setName is what the name of a validation set may be: a part of the name of a curve.
var setName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// Changes reports whether weights of data.paths change during a run.
func (d *Data) Changes() bool {
	return slices.ContainsFunc(d.Paths, func(p WeightPath) bool { return p.Turns != nil })
}

// Named are the names of the sources that the loss of training is told by; nil where data.paths have none.
func (d *Data) Named() []string {
	if names := Sets(d.Paths); len(names) > 1 || len(names) == 1 && names[0] != "" {
		return names
	}
	return nil
}

// Sets are the names of the validation sets that paths belong to, in their order; "" is that of paths without one.
func Sets(paths []WeightPath) (names []string) {
	for _, p := range paths {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// checkWeights refuses paths that are empty and weights that are not above 0.
func checkWeights(at faults, key string, paths []WeightPath) {
	for _, p := range paths {
		if p.Path == "" {
			at.fault(key, "an entry has no path", "name a file, a directory or a pattern")
		}
		if p.Linear && p.Turns == nil {
			at.fault(key, source.Quoted(p.Path)+": linear has no meaning for one weight", "give weights by steps: {0: 0.8, 9000: 0.2}")
		}
		if p.Turns != nil && (key != "data.paths" || len(paths) == 1) {
			at.fault(key, source.Quoted(p.Path)+": a weight that changes is beside others of data.paths", "give a number")
		}
		if p.Weight <= 0 && p.Turns == nil {
			at.fault(key, fmt.Sprintf("%s: weight %g, want more than 0", source.Quoted(p.Path), p.Weight),
				"remove the entry to leave it out")
		}
		if p.Name != "" && !setName.MatchString(p.Name) {
			at.fault(key, fmt.Sprintf("%s: the name %s", source.Quoted(p.Path), source.Quoted(p.Name)),
				"take letters, digits, _, - and ., 64 at most")
		}
	}
}

// QATGroup is train.qat_group where it is not said.
const QATGroup = 32

// Train says how long and on what scale.
//
//lfvet:fields one field a key of the section train
type Train struct {
	Phase              string   `key:"phase" default:"pretrain" oneof:"pretrain|sft" class:"fixed" flag:"training-phase" doc:"pretrain counts the loss on every token, sft on the turns of the assistant."`
	Steps              int      `key:"steps" default:"1000" min:"0" class:"free" flag:"train-iters" doc:"Optimizer updates in all."`
	Epochs             float64  `key:"epochs" default:"0" min:"0" max:"1000000" class:"free" flag:"num-train-epochs" unit:"passes" doc:"Passes over the data, each source of a blend for itself; a share of one too. How many steps they are is counted when the run begins, and train.steps ends it before where it is given. 0 leaves the length to train.steps."`
	GlobalBatch        int      `key:"global_batch" default:"8" min:"1" class:"fixed" flag:"global-batch-size" unit:"samples" doc:"Samples of one update, over all ranks."`
	MicroBatch         int      `key:"micro_batch" default:"1" min:"1" class:"replan" flag:"micro-batch-size" unit:"samples" doc:"Samples that one rank computes at once."`
	Seed               int      `key:"seed" default:"1234" min:"0" class:"fixed" flag:"seed" doc:"Seed of initial weights, dropout and, through data.seed, order."`
	Precision          string   `key:"precision" default:"fp32" oneof:"fp32|bf16|fp16" class:"fixed" flag:"bf16=bf16,fp16=fp16" doc:"Type of weights and activations in the forward and backward; sums, gradients, master weights and optimizer state are fp32."`
	LowPrecision       string   `key:"low_precision" default:"none" oneof:"none|block|block_pow2|mxfp8|mxfp4|nvfp4|tensor|tensor_e4m3|delayed|delayed_e4m3" class:"fixed" flag:"fp8-recipe,fp4-recipe" from:"blockwise=block_pow2,tensorwise=tensor_e4m3" doc:"How operands of the products of layers are rounded before they are multiplied, in the forward and in both gradients, on top of train.precision: block has e4m3 in blocks of 128 with float32 scales (arXiv:2412.19437), block_pow2 with powers of two, mxfp8 and mxfp4 in blocks of 32 (arXiv:2506.08027). nvfp4 has e2m1 in blocks of 16 (arXiv:2509.25149), tensor and tensor_e4m3 one scale a matrix, and delayed and delayed_e4m3 that of steps before. Heads, embeddings, routers, attention and adapters stay as they are."`
	LowPrecisionKeep   []string `key:"low_precision_keep" class:"fixed" doc:"Weights of layers, by patterns with * on full names, that are not rounded."`
	LowDispatch        bool     `key:"low_precision_dispatch" default:"false" class:"fixed" doc:"Rows go to experts in eight bits and scales of blocks, as train.low_precision rounds activations, in half the bytes; what comes back and gradients are as they are (arXiv:2412.19437, section 3.3.3)."`
	LowGather          bool     `key:"low_precision_gather" default:"false" class:"fixed" doc:"With plan.zero 3, weights that train.low_precision rounds are gathered in eight bits and scales of blocks of a row, in half the bytes; with less they are rounded so all the same, and a plan changes nothing."`
	AmaxHistory        int      `key:"amax_history" default:"1" min:"1" max:"4096" class:"fixed" unit:"steps" doc:"Steps whose greatest numbers the scales of delayed recipes follow from: the greatest of them (Megatron's --fp8-amax-history-len, with --fp8-amax-compute-algo max)."`
	QAT                string   `key:"qat" default:"none" oneof:"none|int4|int8" class:"fixed" doc:"Weights of linear layers are multiplied as whole numbers of so few bits have them, with a scale for a group of a row, while they learn as they are: gradients pass the rounding (arXiv:1712.05877, as torchao's fake quantization of weights). lfactor ckpt convert --quantize qat writes those numbers. Embeddings, heads, routers and experts stay as they are."`
	QATGroup           int      `key:"qat_group" default:"32" min:"0" class:"fixed" unit:"columns" doc:"Columns that share a scale with train.qat; 0 is a whole row."`
	Adaptive           Adaptive `key:"adaptive"`
	LossScale          float64  `key:"loss_scale" default:"0" min:"0" class:"fixed" flag:"loss-scale" doc:"fp16 only: constant scale of the loss; 0 adapts it."`
	EncoderPrecision   string   `key:"encoder_precision" default:"same" oneof:"same|fp32|bf16|fp16" class:"fixed" doc:"The same of the vision encoder; same takes train.precision."`
	ProjectorPrecision string   `key:"projector_precision" default:"same" oneof:"same|fp32|bf16|fp16" class:"fixed" doc:"The same of the projector between encoder and decoder; same takes train.precision."`
	InitialScale       float64  `key:"initial_loss_scale" default:"65536" min:"1" class:"fixed" flag:"initial-loss-scale" doc:"fp16 only: first scale of the loss."`
	MinScale           float64  `key:"min_loss_scale" default:"1" min:"0" class:"fixed" flag:"min-loss-scale" doc:"fp16 only: smallest scale of the loss."`
	ScaleWindow        int      `key:"loss_scale_window" default:"1000" min:"1" class:"fixed" flag:"loss-scale-window" unit:"steps" doc:"fp16 only: steps without overflow before the scale doubles."`
	Hysteresis         int      `key:"loss_scale_hysteresis" default:"2" min:"1" class:"fixed" flag:"hysteresis" unit:"steps" doc:"fp16 only: overflows before the scale halves."`
	Reproducible       string   `key:"reproducible" default:"none" oneof:"none|any-plan" class:"fixed" doc:"any-plan: losses, gradient norms and weights have the same bits whatever plan.dp, pp, schedule, zero, threads and procs are, and after any loss or change of these. Gradients are added up in fixed point, in 8 bytes a number. What cuts the sums within a microbatch (train.micro_batch, plan.tp, cp, ep, chunk_size) belongs to the run. What cannot be had is refused."`
	LossAverage        string   `key:"loss_average" default:"microbatch" oneof:"token|microbatch|round" class:"fixed" flag:"calculate-per-token-loss=token,loss-reduction-all-gather=round" doc:"Loss of an update: over all its tokens, the mean of its microbatches' means, as in Megatron, or that of its rounds', a round being the microbatches that all replicas compute at once."`
	LossWeight         string   `key:"loss_weight" default:"token" oneof:"token|sample|square" class:"fixed" flag:"loss-reduction" doc:"What a trained token of a conversation or text with n of them counts in averages of the loss: token 1, sample 1/n, square 1/√n, as in InternVL."`
	MTPWeight          float64  `key:"mtp_loss_weight" default:"0.1" min:"0" class:"fixed" flag:"mtp-loss-scaling-factor" doc:"Weight of the loss of multi-token-prediction layers, shared among them; 0 leaves them out."`
	Router             Router   `key:"router"`
	Indexer            Indexer  `key:"indexer"`
	Routing            string   `key:"routing" default:"own" oneof:"own|record|replay" class:"free" doc:"Where tokens go: own is as routers choose; record writes their choices down too; replay takes recorded ones, of the same model, plan and data, in their place, which routers then weigh."`
	RoutingDir         string   `key:"routing_dir" default:"" class:"free" doc:"Directory of recorded choices, a file a rank; empty is routing below log.dir."`
	RoutingBound       float64  `key:"routing_bound" default:"0" min:"0" class:"replan" doc:"Rows of tokens that a rank may receive for its experts, over the number under even routing: what memory is planned for. A run in which more come ends with exit code 3. 0 plans for all tokens going to one rank."`
	BalanceEvery       int      `key:"balance_every" default:"0" min:"0" class:"free" unit:"steps" doc:"Steps between moves of experts: each time the experts of a layer are placed anew on the ranks of plan.ep, by the tokens that they had since the last time, as DeepSeek's EPLB does. No bit of training changes. 0 leaves them where they are."`
	BalanceHosts       int      `key:"balance_hosts" default:"1" min:"1" class:"free" doc:"Hosts that the ranks of plan.ep are spread over, with train.balance_every: where routers choose groups of experts first, a group stays on one host."`
	Patience           int      `key:"patience" default:"0" min:"0" class:"free" unit:"evaluations" doc:"In a row without a loss below the lowest before by patience_delta, after which the run ends; 0 never."`
	PatienceDelta      float64  `key:"patience_delta" default:"0" min:"0" class:"free" doc:"By how much a loss is lower that counts, for train.patience."`
	EvalSet            string   `key:"eval_set" default:"" class:"free" doc:"Name of the validation set in data.valid whose loss is that of an evaluation: train.patience and checkpoint.best go by it. Empty is the mean of all sets."`
	EvalPrompts        []string `key:"eval_prompts" default:"[]" class:"free" doc:"What is shown behind each evaluation, by the weights of its step. Prompts are answered, the likeliest token each time: as a user's turn where the run learns answers and there is a chat template, as the beginning of a text else. Captions are drawn, each from noise of its own that stays the same. For a policy they are episodes of data.valid, by their numbers from 0, whose actions are predicted beside those that were recorded."`
	EvalImages         []string `key:"eval_images" default:"[]" class:"free" doc:"Files of pictures that train.eval_prompts go with, one for each or one for all: what a vision-language model is asked about, what clips begin with, and what is to be changed."`
	EvalDrawSteps      int      `key:"eval_draw_steps" default:"20" min:"1" class:"free" unit:"steps" doc:"Steps of the sampler for pictures and clips of train.eval_prompts."`
	EvalGuidance       float64  `key:"eval_guidance" default:"0" min:"0" class:"free" doc:"Guidance of those; 0 is 4 where the model learns without captions too (diffusion.caption_dropout), and 1, none, else."`
	EvalTokens         int      `key:"eval_tokens" default:"64" min:"1" class:"free" unit:"tokens" doc:"Length of a written answer to train.eval_prompts, at most."`
	EvalInterval       int      `key:"eval_interval" default:"0" min:"0" class:"free" flag:"eval-interval" unit:"steps" doc:"Steps between validation runs; 0 makes none."`
	EvalSteps          int      `key:"eval_steps" default:"10" min:"0" class:"free" flag:"eval-iters" unit:"batches" doc:"Global batches of a validation run, of each set by itself; 0 makes none."`
	SpikeNorm          float64  `key:"spike_norm" default:"0" min:"0" class:"free" doc:"A step whose gradient norm is more than so many times the usual one is not applied: it is taken again with the samples behind its own. What is usual is an average of the steps before, each of which weighs a fiftieth less than the one behind it. 0 is no limit."`
	SpikeLoss          float64  `key:"spike_loss" default:"0" min:"0" class:"free" doc:"The same by the loss."`
	SpikeAfter         int      `key:"spike_after" default:"32" min:"1" class:"free" unit:"steps" doc:"Steps before nothing is known to be usual."`
	SpikeBack          int      `key:"spike_back" default:"1" min:"1" class:"free" unit:"steps" doc:"Steps that are taken again with other samples, that one the last of them. With more than one the run goes back to its newest checkpoint, takes the steps behind it that are kept again as they were, and the others, none of which lies before the newest step of checkpoint.interval, with other samples."`
	SpikeMost          int      `key:"spike_most" default:"5" min:"1" class:"free" doc:"Times in a row that one step may be out of the ordinary before the run ends with an error."`
	Restarts           int      `key:"restarts" default:"3" min:"0" class:"free" doc:"How often in a row, without a step in between, a process of plan.procs that ends too early is started again; 0 ends the run with it."`
	RestartWindow      float64  `key:"restart_window" default:"0" min:"0" class:"free" unit:"seconds" doc:"How long the end of a process counts for train.restarts though the run has taken steps since."`
	Buddy              string   `key:"buddy" default:"auto" class:"free" doc:"Steps between copies of every rank's state in memory, one of them in another process, on another host if there is one (two for those on the leader's host), from which a process that is started again takes it: a number, auto for as often as costs a hundredth of the time, or off."`
	LogInterval        int      `key:"log_interval" default:"1" min:"1" class:"free" flag:"log-interval" unit:"steps" doc:"Steps between lines of the log."`
}

// Router says how the router of a mixture of experts is trained.
type Router struct {
	Loss     string  `key:"loss" default:"model" oneof:"model|none|pooled|layer|sequence|batch" class:"fixed" doc:"Loss that keeps experts evenly used, of each microbatch: pooled takes the tokens of all layers together, as transformers does; layer adds up one a layer, as Megatron-LM's aux_loss does; sequence is layer for each sequence by itself, as its seq_aux_loss, and does not depend on microbatches; batch is layer with experts counted over all replicas and the step's microbatches so far, as its global_aux_loss; model is pooled where config.json has output_router_logits, else none (arXiv:2101.03961)."`
	Coef     float64 `key:"loss_coef" default:"0" min:"0" class:"fixed" doc:"Factor on that loss; 0 takes the model's router_aux_loss_coef, or 0.001."`
	Z        float64 `key:"z_loss_coef" flag:"moe-z-loss-coeff" default:"0" min:"0" class:"fixed" doc:"Factor on the mean of (log of the sum of exponentials of logits)², one a layer; 0 is none (arXiv:2202.08906)."`
	Jitter   float64 `key:"jitter" default:"0" min:"0" max:"1" class:"fixed" doc:"How far from 1 what the router reads is multiplied at random in training; 0 takes the model's router_jitter_noise."`
	BiasRate float64 `key:"bias_rate" default:"0" min:"0" class:"fixed" doc:"What the numbers that experts are chosen by move after each update towards even use, without a loss; for families that have them (arXiv:2408.15664)."`
	Capacity float64 `key:"capacity" flag:"moe-expert-capacity-factor" default:"0" min:"0" class:"fixed" doc:"Rows that an expert takes of a rank's microbatch, over the number under even use; tokens beyond are dropped and pass by the residual stream only. 0 drops none."`
	Drop     string  `key:"drop" flag:"moe-token-drop-policy" from:"probs=weight" default:"weight" oneof:"weight|position" class:"fixed" doc:"Which rows an expert that is full keeps: those of the greatest weights, or the first ones."`
}

// Check implements section.
func (r *Router) Check(at faults) {
	if r.Drop != "weight" && r.Capacity == 0 {
		at.fault("train.router.drop", "no rows are dropped with train.router.capacity = 0",
			"remove it, or set a capacity")
	}
	if r.Loss == "none" && r.Coef > 0 {
		at.fault("train.router.loss_coef", "has no meaning with train.router.loss: none", "remove it, or name a loss")
	}
}

// Check implements section.
func (t *Train) Check(at faults) {
	if t.Keep() < -1 {
		at.fault("train.buddy", fmt.Sprintf("%s, want auto, off or a number of steps from 1 to 1000",
			source.Quoted(t.Buddy)), "try auto")
	}
	if t.Epochs > 0 && (t.SpikeNorm > 0 || t.SpikeLoss > 0) {
		at.fault("train.epochs", "steps that are taken again with other samples use up more than the passes have",
			"set train.steps, or leave train.spike_norm and train.spike_loss out")
	}
	if t.Patience > 0 && t.EvalInterval == 0 {
		at.fault("train.patience", "counts evaluations, and train.eval_interval = 0 makes none", "set an interval")
	}
	if t.PatienceDelta > 0 && t.Patience == 0 {
		at.fault("train.patience_delta", "is not read: train.patience is 0", "remove it, or set train.patience")
	}
	t.Adaptive.Check(at)
	if t.MinScale > t.InitialScale {
		at.fault("train.min_loss_scale", fmt.Sprintf("%g exceeds train.initial_loss_scale = %g", t.MinScale,
			t.InitialScale), "lower it, or raise train.initial_loss_scale")
	}
	if t.RoutingBound > 0 && t.RoutingBound < 1 {
		at.fault("train.routing_bound", fmt.Sprintf("%g is less than what even routing needs", t.RoutingBound), "try 2")
	}
	if t.BalanceHosts > 1 && t.BalanceEvery == 0 {
		at.fault("train.balance_hosts", "experts do not move with train.balance_every = 0",
			"remove it, or set train.balance_every")
	}
	if t.RoutingDir != "" && t.Routing == "own" {
		at.fault("train.routing_dir", "has no meaning with train.routing: own", "remove it, or record or replay")
	}
	if t.LossScale > 0 && !t.Half() {
		at.fault("train.loss_scale", fmt.Sprintf("has no meaning with train.precision: %s", t.Precision),
			"remove it, or set train.precision: fp16")
	}
}

// AnyPlan reports whether no plan is to change a bit of what the run computes.
func (t *Train) AnyPlan() bool { return t.Reproducible == "any-plan" }

// Evaluates reports whether the loss on validation data is asked for.
func (t *Train) Evaluates() bool { return t.EvalInterval > 0 && t.EvalSteps > 0 }

// Keep is the number of train.buddy: steps between copies in memory, 0 for none and -1 for as often as costs little.
func (t *Train) Keep() int64 {
	switch t.Buddy {
	case "off":
		return 0
	case "auto":
		return -1
	}
	n, err := strconv.ParseInt(t.Buddy, 10, 64)
	if err != nil || n < 1 || n > 1000 {
		return -2
	}
	return n
}

// Half reports whether any part of the model computes in fp16, so that the loss is scaled.
func (t *Train) Half() bool {
	return slices.Contains([]string{t.Precision, t.EncoderPrecision, t.ProjectorPrecision}, "fp16")
}

// Optimizer is the update rule.
type Optimizer struct {
	Kind         string    `key:"kind" default:"adamw" oneof:"@optimizers" class:"fixed" flag:"optimizer" from:"adam=adamw" doc:"AdamW (arXiv:1711.05101), SGD with momentum, Lion (arXiv:2302.06675), which takes beta1, beta2 and a rate three to ten times lower, or Muon (arXiv:2502.16982), which has the matrices of layers and leaves the rest to AdamW; schedule_free (arXiv:2405.15682), whose average of weights is the model, with a rate that does not fall."`
	LR           float64   `key:"lr" default:"0.0003" min:"0" class:"free" flag:"lr" doc:"Largest learning rate."`
	MinLR        float64   `key:"min_lr" default:"0" min:"0" class:"free" flag:"min-lr" doc:"Learning rate at the end of the decay."`
	EncoderLR    float64   `key:"encoder_lr_scale" default:"1" min:"0" class:"free" doc:"Factor on the learning rate of the vision encoder."`
	ProjectorLR  float64   `key:"projector_lr_scale" default:"1" min:"0" class:"free" doc:"Factor on the learning rate of the projector."`
	Beta1        float64   `key:"beta1" default:"0.9" min:"0" max:"1" class:"free" flag:"adam-beta1" doc:"AdamW's decay of the first moment."`
	Beta2        float64   `key:"beta2" default:"0.95" min:"0" max:"1" class:"free" flag:"adam-beta2" doc:"AdamW's decay of the second moment."`
	Eps          float64   `key:"eps" default:"1e-8" min:"0" class:"free" flag:"adam-eps" doc:"AdamW's term under the fraction."`
	WeightDecay  float64   `key:"weight_decay" default:"0.1" min:"0" class:"free" flag:"weight-decay" doc:"Decoupled decay of weights; biases and norms have none."`
	Momentum     float64   `key:"momentum" default:"0.9" min:"0" max:"1" class:"free" flag:"sgd-momentum" doc:"SGD's momentum."`
	Moments      string    `key:"moments" default:"fp32" oneof:"fp32|bf16|8bit" class:"fixed" flag:"exp-avg-dtype,exp-avg-sq-dtype" doc:"Type that AdamW keeps its moments in: bf16 rounds them up or down by chance, 8bit keeps places in a dynamic map and a scale of each block of a row, as bitsandbytes and torchao (arXiv:2110.02861)."`
	MomentsBlock int       `key:"moments_block" default:"256" min:"16" class:"fixed" doc:"8bit: most numbers of a row that have a scale together. A parameter's are the largest power of two that its rows are a multiple of; where that is below 16, of vectors, and of less than 4,096 numbers moments stay in float32."`
	MuonBeta     float64   `key:"muon_momentum" default:"0.95" min:"0" max:"1" class:"free" flag:"muon-momentum" doc:"Muon's momentum."`
	MuonPlain    bool      `key:"muon_plain" default:"false" class:"free" doc:"Muon takes the momentum itself, and not Nesterov's."`
	MuonSteps    int       `key:"muon_steps" default:"5" min:"1" max:"100" class:"free" flag:"muon-num-ns-steps" doc:"Steps of Muon's iteration of Newton and Schulz."`
	MuonScale    string    `key:"muon_scale" default:"match_rms" oneof:"match_rms|spectral" class:"fixed" doc:"What Muon's updates of a matrix [n k] are multiplied with: match_rms has 0.2·√max(n, k), with which optimizer.lr and weight_decay serve it and AdamW (arXiv:2502.16982); spectral has √max(1, n/k)."`
	MuPBase      int       `key:"mup_base_width" default:"0" min:"0" class:"fixed" flag:"mup-base-hidden-size" doc:"Hidden size of the narrow model that optimizer.lr and the deviation of first values were found with: those of a wide one follow by the rules of maximal update parametrization (arXiv:2203.03466). 0 is none."`
	Adafactor    Adafactor `key:"adafactor"`
	QKClip       QKClip    `key:"qk_clip"`
	ClipGrad     float64   `key:"clip_grad" default:"1" min:"0" class:"free" flag:"clip-grad" doc:"Largest global gradient norm; 0 does not clip."`
	Groups       []string  `key:"groups" class:"free" doc:"Parameters with rules of their own: a pattern with * on full names, and behind it lr= and decay=, factors on optimizer.lr and optimizer.weight_decay, clip=, a gradient norm of their own, which is then no part of the one that optimizer.clip_grad holds, and optimizer=, in place of optimizer.kind, as '*.to_q.weight lr=0.1 decay=0 optimizer=lion'. No two may match one parameter."`
	EMA          float64   `key:"ema" default:"0" min:"0" max:"1" class:"fixed" doc:"Largest decay of an exponential moving average of the weights, kept and saved beside them; 0 keeps none. It is (1+k)/(10+k) at update k until it reaches this, as in diffusers."`
	EMAAfter     int       `key:"ema_after" default:"0" min:"0" class:"fixed" unit:"steps" doc:"Updates before the average begins; it is a copy of the weights until then."`
	EMAPower     float64   `key:"ema_power" default:"0" min:"0" class:"fixed" doc:"Lets the decay rise as 1-(1+k)^-power instead; 0 does not. diffusers has 2/3."`
}

// Check implements section.
func (o *Optimizer) Check(at faults) {
	if o.MinLR > o.LR {
		at.fault("optimizer.min_lr", fmt.Sprintf("%g exceeds optimizer.lr = %g", o.MinLR, o.LR),
			"lower it, or raise optimizer.lr")
	}
	o.QKClip.Check(at)
	o.Adafactor.check(o, at)
	for _, text := range o.Groups {
		if _, err := ParseGroup(text); err != nil {
			at.fault("optimizer.groups", err.Error(), "")
		}
	}
	switch {
	case o.EMA == 1:
		at.fault("optimizer.ema", "1 never takes anything in", "try 0.9999")
	case o.EMA == 0 && o.EMAAfter > 0:
		at.fault("optimizer.ema_after", "no average is kept", "set optimizer.ema, as 0.9999")
	case o.EMA == 0 && o.EMAPower > 0:
		at.fault("optimizer.ema_power", "no average is kept", "set optimizer.ema, as 0.9999")
	}
	if o.MuonBeta == 1 {
		at.fault("optimizer.muon_momentum", "1 never forgets", "try 0.95")
	}
	for i, beta := range []float64{o.Beta1, o.Beta2, o.Momentum} {
		if beta == 1 {
			at.fault([]string{"optimizer.beta1", "optimizer.beta2", "optimizer.momentum"}[i],
				"1 never forgets", "try 0.9")
		}
	}
}

// Schedule is the learning rate over the steps, as in Megatron's optimizer_param_scheduler.
type Schedule struct {
	Kind          string  `key:"kind" default:"cosine" oneof:"@rates" class:"free" flag:"lr-decay-style" from:"WSD=wsd" doc:"Shape of the decay."`
	WarmupSteps   int     `key:"warmup_steps" default:"0" min:"0" class:"free" flag:"lr-warmup-iters" unit:"steps" doc:"Steps in which the rate rises linearly."`
	WarmupShare   float64 `key:"warmup_fraction" default:"0" min:"0" max:"1" class:"free" flag:"lr-warmup-fraction" doc:"The same as a share of the decay's steps."`
	WarmupInit    float64 `key:"warmup_init" default:"0" min:"0" class:"free" flag:"lr-warmup-init" doc:"Rate before the first step."`
	DecaySteps    int     `key:"decay_steps" default:"0" min:"0" class:"free" flag:"lr-decay-iters" unit:"steps" doc:"Steps until optimizer.min_lr is reached; 0 means train.steps."`
	WSDDecay      string  `key:"wsd_decay" default:"exponential" oneof:"@tails" class:"free" flag:"lr-wsd-decay-style" doc:"wsd only: shape of the last part."`
	WSDDecaySteps int     `key:"wsd_decay_steps" default:"0" min:"0" class:"free" flag:"lr-wsd-decay-iters" unit:"steps" doc:"wsd only: steps of the last part."`
}

// Check implements section.
func (s *Schedule) Check(at faults) {
	if s.WarmupSteps > 0 && s.WarmupShare > 0 {
		at.fault("schedule.warmup_fraction", "schedule.warmup_steps is set too", "keep one of them")
	}
	if s.Kind == "wsd" && s.WSDDecaySteps == 0 {
		at.fault("schedule.wsd_decay_steps", "wsd needs the steps of its last part", "try a tenth of train.steps")
	}
	if s.DecaySteps > 0 && s.WarmupSteps >= s.DecaySteps {
		at.fault("schedule.warmup_steps", fmt.Sprintf("%d leaves nothing of schedule.decay_steps = %d",
			s.WarmupSteps, s.DecaySteps), "lower it, or raise schedule.decay_steps")
	}
}
