package configs

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// Plan says how the work is spread over ranks. Their number is pp · tp · cp · dp.
type Plan struct {
	PP               int     `key:"pp" default:"1" min:"1" max:"4096" class:"replan" flag:"pipeline-model-parallel-size" doc:"Pipeline stages: ranks that hold consecutive layers."`
	TP               int     `key:"tp" default:"1" min:"1" max:"4096" class:"replan" flag:"tensor-model-parallel-size" doc:"Ranks that share each layer."`
	DP               int     `key:"dp" default:"1" min:"1" max:"65536" class:"replan" flag:"data-parallel-size" doc:"Copies of the model, each with its share of the batch."`
	CP               int     `key:"cp" default:"1" min:"1" max:"4096" class:"replan" flag:"context-parallel-size" doc:"Ranks that the tokens of a microbatch are shared out over; plan.cp_comm says how attention gets at what they lack."`
	CPComm           string  `key:"cp_comm" default:"gather" oneof:"gather|ring|ulysses|hybrid" class:"replan" flag:"cp-comm-type" from:"all_gather=gather,p2p=ring,a2a=ulysses,a2a+p2p=hybrid" doc:"Attention over plan.cp ranks: gather keys and values, have them go round a ring (arXiv:2310.01889), exchange tokens for heads (ulysses, arXiv:2309.14509), or both of these (hybrid: rings of plan.ulysses ranks that exchange, arXiv:2405.07719)."`
	CPLayout         string  `key:"cp_layout" default:"auto" oneof:"auto|zigzag|contiguous" class:"replan" doc:"Tokens of each of plan.cp ranks: one run, or with zigzag one from the front of a microbatch and one from its back, so that causal attention is as much work everywhere. auto is zigzag where ranks do not exchange heads alone."`
	Ulysses          int     `key:"ulysses" default:"0" min:"0" max:"4096" class:"replan" flag:"context-parallel-ulysses-degree" doc:"How many of plan.cp ranks exchange tokens for heads with each other, with plan.cp_comm hybrid or gather; 0 is all with ulysses, else none."`
	EP               int     `key:"ep" flag:"expert-model-parallel-size" default:"1" min:"1" max:"65536" class:"replan" doc:"Ranks that a layer's experts are shared out over: some of the dp · cp · tp ranks of a pipeline stage, whose tokens go to where their experts are."`
	ETP              int     `key:"etp" flag:"expert-tensor-parallel-size" default:"1" min:"1" max:"4096" class:"replan" doc:"Ranks that share each expert; plan.ep · plan.etp of them divide plan.dp · plan.cp · plan.tp, and the rest are copies (arXiv:2504.14960)."`
	RedundantExperts int     `key:"redundant_experts" default:"0" min:"0" max:"65536" class:"replan" doc:"Copies of busy experts that each layer has beside its experts, placed with them by train.balance_every; they take turns with tokens. plan.ep has to divide experts and copies together."`
	Zero             int     `key:"zero" default:"0" min:"0" max:"3" class:"replan" flag:"use-distributed-optimizer=1,data-parallel-sharding-strategy" from:"no_shard=0,optim=1,optim_grads=2,optim_grads_params=3" doc:"What data-parallel ranks share out: 1 optimizer state, 2 gradients as well, 3 weights as well (arXiv:1910.02054)."`
	ZeroRanks        int     `key:"zero_ranks" default:"0" min:"0" max:"65536" class:"replan" doc:"Data-parallel ranks that plan.zero shares state out over; the groups of that many are replicas of each other (HSDP), as inside hosts and across them. 0 takes all of plan.dp."`
	SequenceParallel bool    `key:"sequence_parallel" default:"false" class:"replan" flag:"sequence-parallel" doc:"Share the activations between tensor-parallel layers along the sequence (arXiv:2205.05198)."`
	Schedule         string  `key:"schedule" default:"1f1b" oneof:"@schedules" class:"replan" flag:"enable-chunkpipe=chunkpipe" doc:"Order of forwards and backwards; lfactor plan --schedules lists them."`
	VirtualStages    int     `key:"virtual_stages" default:"1" min:"1" max:"1024" class:"replan" flag:"num-virtual-stages-per-pipeline-rank" doc:"Pieces of the pipeline on each rank, for interleaved schedules."`
	Layers           []int   `key:"layers" class:"replan" flag:"custom-pipeline-layers" doc:"Layers of each stage, in order of the pipeline; by default all have the same number."`
	Recompute        string  `key:"recompute" default:"selective" oneof:"none|selective|full" class:"replan" flag:"recompute-granularity" doc:"Activations computed again in the backward: none, those that cost no product (norms, gates, activations), or all inside a layer."`
	RecomputeLayers  []int   `key:"recompute_layers" class:"replan" flag:"custom-pipeline-recompute-layers" doc:"How many of the first layers of each stage, or of every stage, plan.recompute is for; by default all."`
	ProjRecompute    string  `key:"projector_recompute" default:"same" oneof:"same|none|selective|full" class:"replan" doc:"The same of the projector of a composed model; same takes plan.recompute."`
	Offload          bool    `key:"offload" default:"false" class:"replan" doc:"Keep the activations that the backward needs in host memory in between, those of 64 KiB and more."`
	OffloadOptimizer bool    `key:"offload_optimizer" default:"false" class:"replan" flag:"optimizer-cpu-offload" doc:"Keep the optimizer's state in host memory between updates, master weights among it. The update takes it in pieces, so that losses keep their bits."`
	OffloadShare     float64 `key:"offload_optimizer_share" default:"1" min:"0" max:"1" class:"replan" flag:"optimizer-offload-fraction" doc:"How much of the state plan.offload_optimizer is for."`
	OffloadDir       string  `key:"offload_dir" class:"free" doc:"Folder of the files, mapped into memory, in which ranks on a processor keep what plan.offload and plan.offload_optimizer move; by default log.dir. Devices use pinned memory."`
	Overlap          bool    `key:"overlap" default:"false" class:"replan" doc:"Await gathers, reductions and sums at their first use, so that they travel behind other work; losses keep their bits."`
	OverlapMicro     bool    `key:"overlap_microbatches" default:"false" class:"replan" flag:"overlap-moe-expert-parallel-comm" doc:"Run the forward of one microbatch in turns with the backward of another, so that exchanges between ranks, of experts' tokens above all, travel behind the other's computation; with 1f1b, interleaved and dualpipev. Takes the activations of more microbatches; losses keep their bits. Includes plan.overlap."`
	BucketBytes      Bytes   `key:"bucket_bytes" default:"25MiB" class:"replan" doc:"Gradients (float32) that data-parallel ranks sum are sent while the backward goes on, as soon as so many are final; the rest is sent behind it, and 0 sends all there. Losses keep their bits. plan.zero 2 and 3 sum each microbatch's gradients instead, and send so what replicas of plan.zero_ranks sum."`
	ChunkSize        int     `key:"chunk_size" default:"0" min:"0" max:"16777216" class:"replan" flag:"chunksize" unit:"tokens" doc:"Chunks that chunkpipe and seq1f1b cut each sequence into; 0 leaves sequences whole."`
	KeepChunks       int     `key:"keep_chunks" default:"0" min:"0" max:"32767" class:"replan" flag:"keep-activations-chunks" doc:"Newest chunks of a sequence that keep their activations in spite of plan.recompute."`
	Encoder          Tower   `key:"encoder"`
	Procs            int     `key:"procs" default:"1" min:"1" max:"1024" class:"replan" flag:"procs" doc:"Processes of this host that the ranks are spread over."`
	Threads          int     `key:"threads" default:"0" min:"0" max:"4096" class:"free" doc:"Threads for kernels in each process; 0 takes the cores there are, shared among the processes."`
	Memory           Bytes   `key:"memory" default:"0" class:"replan" doc:"Budget of the tensors of each rank; 0 takes nine tenths of this machine's memory, or of what its control groups permit, shared by the ranks."`

	OffloadTensors   []string `key:"offload_tensors" class:"replan" doc:"Tensors that a block keeps for its backward and that go to host memory in between, by the names that lfactor plan --tensors lists; name@2 is block 2's alone, name@2-5 those of blocks 2 to 5. Megatron-LM's words for modules stand for what these read: attn_norm, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act."`
	RecomputeTensors []string `key:"recompute_tensors" class:"replan" flag:"recompute-modules" doc:"Tensors that are computed again in the backward, whatever plan.recompute and plan.offload say; named as in plan.offload_tensors, or by Megatron-LM's words for modules that make them, as core_attn, layernorm, moe_act."`
	KeepTensors      []string `key:"keep_tensors" class:"replan" doc:"Tensors that stay on the device, whatever plan.recompute and plan.offload say; named as in plan.offload_tensors."`
}

// Ranks is the number of ranks of the run.
func (p *Plan) Ranks() int {
	n := p.PP * p.TP * p.CP * p.DP
	if p.Encoder.Over == "own" {
		n += p.DP * p.Encoder.Ranks
	}
	return n
}

// Exchanging is the number of ranks that exchange tokens for heads with each other; the other plan.cp /
// Exchanging gather keys and values, or form a ring.
func (p *Plan) Exchanging() int {
	switch {
	case p.Ulysses > 0:
		return p.Ulysses
	case p.CPComm == "ulysses":
		return max(1, p.CP)
	}
	return 1
}

// Zigzag reports whether tokens are dealt out in two runs to each rank.
func (p *Plan) Zigzag() bool { return p.CP > p.Exchanging() && p.CPLayout != "contiguous" }

// Parts is the number of parts of equal length that the tokens of a microbatch have to be cut into.
func (p *Plan) Parts() int {
	n := max(1, p.CP)
	if p.Zigzag() {
		n *= 2
	}
	if p.SequenceParallel {
		n *= p.TP
	}
	return n
}

// checkContext holds the ways of context parallelism to its ranks.
func (p *Plan) checkContext(at faults) {
	if p.CP == 1 {
		for _, x := range []struct {
			key string
			set bool
		}{{"cp_comm", p.CPComm != "gather"}, {"cp_layout", p.CPLayout != "auto"}, {"ulysses", p.Ulysses > 1}} {
			if x.set {
				at.fault("plan."+x.key, "has nothing to say with plan.cp = 1", "remove it, or raise plan.cp")
			}
		}
		return
	}
	switch u := p.Exchanging(); {
	case p.CP%u != 0:
		at.fault("plan.ulysses", fmt.Sprintf("%d does not divide plan.cp = %d", u, p.CP),
			fmt.Sprintf("try %d", nearestDivisor(p.CP, u)))
	case p.CPComm == "ulysses" && u != p.CP:
		at.fault("plan.ulysses",
			fmt.Sprintf("%d of plan.cp = %d ranks, but plan.cp_comm: ulysses has all exchange heads", u,
				p.CP), "set plan.cp_comm: hybrid, or remove it")
	case p.CPComm == "ring" && u > 1:
		at.fault("plan.ulysses", "a ring exchanges no heads", "set plan.cp_comm: hybrid, or remove it")
	case p.CPComm == "hybrid" && (u == 1 || u == p.CP):
		at.fault("plan.ulysses",
			fmt.Sprintf("hybrid wants some of plan.cp = %d ranks to exchange heads, and more than one "+
				"ring of the others", p.CP),
			"give a divisor between, or set plan.cp_comm to ring or ulysses")
	case p.CPLayout == "zigzag" && p.CP == u:
		at.fault("plan.cp_layout", "ranks that exchange heads have all tokens in attention, in order", "remove it")
	}
}

// Check implements section.
func (p *Plan) Check(at faults) {
	p.checkContext(at)
	if n := len(p.Layers); n > 0 && n != p.PP*p.VirtualStages {
		at.fault("plan.layers", fmt.Sprintf("%d entries for plan.pp · plan.virtual_stages = %d stages", n,
			p.PP*p.VirtualStages), "give every stage its layers")
	}
	if slices.ContainsFunc(p.Layers, func(n int) bool { return n < 0 }) {
		at.fault("plan.layers", "a stage has less than no layer", "give every stage 0 or more")
	}
	switch n := len(p.RecomputeLayers); {
	case n > 0 && p.Recompute == "none":
		at.fault("plan.recompute_layers", "nothing is recomputed", "set plan.recompute, or remove it")
	case n > 1 && n != p.PP*p.VirtualStages:
		at.fault("plan.recompute_layers",
			fmt.Sprintf("%d entries for plan.pp · plan.virtual_stages = %d stages", n, p.PP*p.VirtualStages),
			"give every stage its own, or one for all")
	case slices.ContainsFunc(p.RecomputeLayers, func(n int) bool { return n < 0 }):
		at.fault("plan.recompute_layers", "a stage has less than no layer", "give every stage 0 or more")
	}
	switch n := p.ZeroRanks; {
	case n > 0 && p.Zero == 0:
		at.fault("plan.zero_ranks", "nothing is shared out with plan.zero = 0", "set plan.zero, or remove it")
	case n > 0 && p.DP%n != 0:
		at.fault("plan.zero_ranks",
			fmt.Sprintf("plan.dp = %d ranks cannot be spread evenly over groups of %d", p.DP, n),
			fmt.Sprintf("try %d", nearestDivisor(p.DP, n)))
	}
	p.checkTensors(at)
	p.checkExperts(at)
	if p.OverlapMicro && p.TP*p.CP*p.EP*p.ETP == 1 && p.Zero < 2 {
		at.fault("plan.overlap_microbatches", "no rank exchanges anything with others within a microbatch",
			"remove it; it is for plan.ep, plan.tp, plan.cp, and plan.zero 2 and 3")
	}
	if p.OffloadShare < 1 && !p.OffloadOptimizer {
		at.fault("plan.offload_optimizer_share", "nothing of the optimizer's state is moved",
			"set plan.offload_optimizer, or remove it")
	}
	if p.OffloadDir != "" && !p.Offload && !p.OffloadOptimizer && len(p.OffloadTensors) == 0 {
		at.fault("plan.offload_dir", "nothing is moved there",
			"set plan.offload, plan.offload_tensors or plan.offload_optimizer")
	}
	if p.SequenceParallel && p.TP == 1 {
		at.fault("plan.sequence_parallel", "has nothing to share with plan.tp = 1", "remove it, or raise plan.tp")
	}
	if ranks := p.Ranks(); p.Procs > ranks {
		at.fault("plan.procs", fmt.Sprintf("%d processes for pp · tp · dp = %d ranks", p.Procs, ranks),
			fmt.Sprintf("try %d", ranks))
	} else if ranks%p.Procs != 0 {
		at.fault("plan.procs", fmt.Sprintf("pp · tp · dp = %d ranks cannot be spread evenly over %d "+
			"processes", ranks, p.Procs), fmt.Sprintf("try %d", nearestDivisor(ranks, p.Procs)))
	}
}

// checkExperts holds the experts' mesh to the ranks that it is folded over.
func (p *Plan) checkExperts(at faults) {
	all, each := p.DP*p.CP*p.TP, p.EP*p.ETP
	switch {
	case all%each != 0 && p.ETP > 1 && all%p.ETP != 0:
		at.fault("plan.etp", fmt.Sprintf("plan.dp · plan.tp = %d ranks cannot be spread evenly over "+
			"groups of %d", all, p.ETP), fmt.Sprintf("try %d", nearestDivisor(all, p.ETP)))
	case all%each != 0:
		at.fault("plan.ep", fmt.Sprintf("plan.dp · plan.tp = %d ranks cannot be spread evenly over "+
			"groups of plan.ep · plan.etp = %d", all, each),
			fmt.Sprintf("try %d", nearestDivisor(all/p.ETP, p.EP)))
	case p.ZeroRanks > 0 && each > 1 && p.ZeroRanks*p.CP*p.TP%each != 0:
		at.fault("plan.zero_ranks",
			fmt.Sprintf("groups of %d · plan.cp · plan.tp = %d ranks share out state, and plan.ep · "+
				"plan.etp = %d do not divide them", p.ZeroRanks, p.ZeroRanks*p.CP*p.TP, each),
			"choose plan.ep and plan.etp that divide them, or leave plan.zero_ranks out")
	}
}

// Tower says where the vision encoder of a composed model runs, if not as the first blocks of the pipeline.
type Tower struct {
	Over      string `key:"over" default:"none" oneof:"none|first|all|own" class:"replan" flag:"enable-encoder-hetero-dp=first,enable-full-hetero-dp=all" doc:"Ranks of the encoder: none cuts it like any other block, first takes those of the first pipeline rank, all those of the whole replica, own some of its own. Where they are more than plan.encoder.tp, its replicas take microbatches in turn."`
	TP        int    `key:"tp" default:"1" min:"1" max:"4096" class:"replan" flag:"encoder-tensor-model-parallel-size" doc:"Ranks that share each layer of the encoder."`
	Ranks     int    `key:"ranks" default:"0" min:"0" max:"4096" class:"replan" doc:"Ranks of its own for each replica of the decoder, with plan.encoder.over: own."`
	Device    string `key:"device" default:"same" oneof:"same|cpu|auto|cuda|cuda:NUMBER|cuda:UUID|xpu|xpu:PATH" class:"replan" doc:"Where kernels of the encoder's own ranks run, with plan.encoder.over: own; same is the key device."`
	Recompute string `key:"recompute" default:"same" oneof:"same|none|selective|full" class:"replan" doc:"Activations of the encoder computed again in its backward, as in plan.recompute; same takes that."`
	Ahead     int    `key:"ahead" default:"0" min:"0" max:"65536" class:"replan" unit:"microbatches" doc:"How far the encoder may run ahead of the decoder; 0 takes what is fastest by the plan's costs."`
	Patches   int    `key:"patches" default:"0" min:"0" class:"free" doc:"Patches of images in a large microbatch: what memory is planned for and simulated; 0 takes as many as its tokens can stand for."`
	Fill      bool   `key:"fill" default:"true" class:"replan" doc:"Encode while the decoder's pipeline waits, instead of right before the features are needed."`
}

// Check implements section.
func (t *Tower) Check(at faults) {
	if t.Over == "none" && t.Ranks > 0 {
		at.fault("plan.encoder.ranks", "has no meaning with plan.encoder.over: none", "set plan.encoder.over: own")
	}
	if t.Over != "own" && t.Device != "same" {
		at.fault("plan.encoder.device", "the encoder has no ranks of its own", "set plan.encoder.over: own, "+
			"or leave plan.encoder.device out")
	}
	if t.Over == "own" && t.Ranks == 0 {
		at.fault("plan.encoder.ranks", "is not given", "say how many ranks each replica's encoder has")
	}
	if t.Over == "own" && t.Ranks%t.TP != 0 {
		at.fault("plan.encoder.ranks", fmt.Sprintf("%d is not a multiple of plan.encoder.tp = %d", t.Ranks,
			t.TP), fmt.Sprintf("try %d", (t.Ranks/t.TP+1)*t.TP))
	}
}

var loraInit = regexp.MustCompile(`^(kaiming|gaussian|olora|pissa(_niter_[1-9][0-9]?)?)$`)

// LoRA trains low-rank additions to some linear layers instead of the weights. Paper: arXiv:2106.09685.
type LoRA struct {
	Rank         int      `key:"rank" default:"0" min:"0" class:"fixed" flag:"lora-dim" doc:"Rank of the additions; 0 trains the weights themselves."`
	Alpha        float64  `key:"alpha" default:"32" min:"0" class:"fixed" flag:"lora-alpha" doc:"The additions are scaled by alpha/rank."`
	RSLoRA       bool     `key:"rslora" default:"false" class:"fixed" doc:"The additions are scaled by alpha/√rank instead: rsLoRA, arXiv:2312.03732."`
	DoRA         bool     `key:"dora" default:"false" class:"fixed" doc:"The rows of each weight with its addition have norms that learn: DoRA, arXiv:2402.09353. Layers of lora.targets alone that are matrices as [out in] in train.precision."`
	Init         string   `key:"init" default:"kaiming" class:"fixed" doc:"What the additions begin with, as PEFT's init_lora_weights: kaiming and gaussian with nothing; pissa (arXiv:2404.02948) with the greatest singular vectors of the weight, of a whole decomposition, or found in N rounds with pissa_niter_N, which large matrices want; olora (arXiv:2406.01775) with columns of its QR. The weight is less by what they begin with, so that the model is the same."`
	RankPattern  []string `key:"rank_pattern" class:"fixed" doc:"Ranks of some layers, as *.q_proj=4: a pattern and a number; the first that matches counts."`
	AlphaPattern []string `key:"alpha_pattern" class:"fixed" doc:"Alphas of some layers, as *.q_proj=64; the first that matches counts."`
	Modules      []string `key:"modules_to_save" class:"fixed" doc:"Patterns of modules that are trained whole beside the additions and saved with them, as embed_tokens, lm_head or *norm; a tied head learns with its table."`
	Tokens       []int    `key:"trainable_tokens" class:"fixed" doc:"Tokens whose rows of the table learn beside the additions, and with them those of a tied head: PEFT's trainable_token_indices."`
	Dropout      float64  `key:"dropout" default:"0" min:"0" max:"1" class:"fixed" flag:"lora-dropout" doc:"Share of inputs dropped before the additions."`
	Targets      []string `key:"targets" default:"['*.q_proj', '*.k_proj', '*.v_proj', '*.o_proj']" class:"fixed" doc:"Linear layers that get additions, as patterns with * on their full names."`
	Base         string   `key:"base" default:"model" oneof:"model|kept|nf4|fp4|int4|int8|fp8|e2m1" class:"fixed" doc:"How the weights of linear layers lie in memory, which do not learn: in train.precision, in few bits as model.path keeps them (kept), or rounded to a form: nf4 (arXiv:2305.14314) and fp4 have a scale for 64 columns, int4 and fp8 (e4m3) for 128, e2m1 for 16, int8 for a row. Products unpack them tile by tile. Embeddings, heads, norms, biases, and experts with plan.etp above 1, stay in train.precision."`
	AdaptersOnly bool     `key:"adapters_only" default:"true" class:"free" doc:"Save the additions alone, in PEFT's format."`
	Merge        bool     `key:"merge" default:"false" class:"free" doc:"Add them to the weights on export."`
}

// Patterned reads a pattern and the number behind it, as *.q_proj=4.
func Patterned(text string) (pattern string, n float64, err error) {
	pattern, number, _ := strings.Cut(text, "=")
	if n, err = strconv.ParseFloat(number, 64); err == nil && !(n > 0 && n <= 65536) { // nor one that is no number
		err = strconv.ErrRange
	}
	return pattern, n, err
}

// Check implements section.
func (l *LoRA) Check(at faults) {
	if l.Rank > 0 && len(l.Targets) == 0 {
		at.fault("lora.targets", "no layer is to get additions", "try ['*.q_proj', '*.v_proj']")
	}
	for key, all := range map[string][]string{"lora.rank_pattern": l.RankPattern, "lora.alpha_pattern": l.AlphaPattern} {
		for _, text := range all {
			if _, n, err := Patterned(text); err != nil || key == "lora.rank_pattern" && n != math.Trunc(n) {
				at.fault(key, fmt.Sprintf("%q is no pattern and number", text), "write *.q_proj=4")
			}
		}
	}
	if !loraInit.MatchString(l.Init) {
		at.fault("lora.init", fmt.Sprintf("there is no %q", l.Init), "try kaiming, gaussian, olora, pissa or pissa_niter_16")
	}
	if l.Dropout == 1 {
		at.fault("lora.dropout", "1 drops everything", "try 0.1")
	}
}

// Checkpoint says where state is kept.
type Checkpoint struct {
	Dir           string `key:"dir" class:"free" flag:"save" doc:"Directory of checkpoints; a run that finds one there goes on from it."`
	Load          string `key:"load" class:"free" flag:"load,pretrained-checkpoint" doc:"Hugging Face directory or checkpoint to start from if checkpoint.dir has none."`
	LoadOptimizer bool   `key:"load_optimizer" default:"true" class:"free" flag:"no-load-optim=false,finetune=false" doc:"Take the optimizer's state and the step from checkpoint.load as well. What is in checkpoint.dir is always taken whole."`
	LoadRNG       bool   `key:"load_rng" default:"true" class:"free" flag:"no-load-rng=false" doc:"Take the random state and the position in the data from checkpoint.load as well."`
	Interval      int    `key:"interval" default:"0" min:"0" class:"free" flag:"save-interval" unit:"steps" doc:"Steps between saves; 0 saves at the end only."`
	Keep          int    `key:"keep" default:"2" min:"1" class:"free" doc:"Checkpoints to keep; the latest always stays."`
	Best          bool   `key:"best" default:"false" class:"free" doc:"Keep, beside checkpoint.keep of the newest, the checkpoint whose step had the lowest loss of an evaluation, and export that one at the end. A save that comes while another is under way is put off to a step that may have none. Evaluations come with every save: checkpoint.interval is train.eval_interval or a multiple of it."`
	SaveHF        bool   `key:"save_hf" default:"false" class:"free" flag:"save-hf" doc:"Export a Hugging Face directory at the end."`
	SaveHFPath    string `key:"save_hf_path" class:"free" flag:"save-hf-path" doc:"Where to; by default release_hf_weights in checkpoint.dir."`
	SaveHFAverage bool   `key:"save_hf_ema" default:"false" class:"free" doc:"Export the average of the weights that optimizer.ema keeps instead of the last ones."`
}

// Check implements section.
func (c *Checkpoint) Check(at faults) {
	if c.Interval > 0 && c.Dir == "" {
		at.fault("checkpoint.interval", "checkpoint.dir is not set", "set it to a directory")
	}
	if c.SaveHF && c.Dir == "" && c.SaveHFPath == "" {
		at.fault("checkpoint.save_hf", "neither checkpoint.save_hf_path nor checkpoint.dir is set", "set one of them")
	}
}

// Log says what is written about the run.
type Log struct {
	Dir             string   `key:"dir" default:"runs/latest" class:"free" doc:"Run directory: log, metrics, loss curve, and in run.json whose they are and how the run ended. Records of another run that lie there are moved to a folder with its time and name, below before, or beside runs/latest; a run that goes on from its checkpoint takes its own back."`
	JSONL           string   `key:"jsonl" default:"metrics.jsonl" class:"free" doc:"Metrics, one JSON object a step, below log.dir; empty writes none."`
	TensorBoard     string   `key:"tensorboard" default:"tensorboard" class:"free" flag:"tensorboard-dir" doc:"Directory of TensorBoard event files, below log.dir unless absolute; empty writes none."`
	Trackers        []string `key:"trackers" class:"free" doc:"Further records of the figures, below log.dir: wandb, a directory as Weights & Biases writes it offline, for wandb sync; mlflow, MLflow's store of files, mlruns."`
	Project         string   `key:"project" default:"lfactor" class:"free" doc:"Under which trackers group runs."`
	Name            string   `key:"name" class:"free" doc:"What the run is called in its record and by trackers; empty is the family of its model there, and the name of log.dir for trackers."`
	Experts         int      `key:"experts" default:"0" min:"0" class:"free" unit:"steps" doc:"Steps between records of how a mixture's experts are used: rows, drops and the router's entropy, in the metrics, and an image of them, experts.svg; 0 makes none."`
	Edges           float64  `key:"edges" default:"10" min:"0" class:"free" doc:"Seconds between records of what actors sent and waited for, in edges.jsonl below log.dir, more where there are so many edges that the file would grow by over 1 kB/s; 0 makes none."`
	Tensors         []string `key:"tensors" class:"free" doc:"Patterns with * of tensors to write down, below log.dir in tensors: MODULE.input, MODULE.output and MODULE.output_grad of a module that has a weight, as *.down_proj.output, a parameter's own name for its weights, and that with _grad for its gradient, summed over all ranks."`
	TensorSteps     []string `key:"tensor_steps" class:"free" doc:"Of which steps: 10, or 10-20, or 100-1000/100 for every hundredth."`
	TensorMicro     []int    `key:"tensor_microbatches" default:"[0]" class:"free" doc:"Of which microbatches of a step, from 0; parameters and their gradients are of the step."`
	TensorValues    bool     `key:"tensor_values" default:"true" class:"free" doc:"Write the numbers (safetensors) beside their statistics (JSON lines)."`
	AttentionLogits bool     `key:"attention_logits" default:"false" class:"fixed" flag:"log-max-attention-logit" doc:"Keep the greatest score of attention of every layer, before its softmax, in metrics; optimizer.qk_clip does so too."`
	Stall           float64  `key:"stall" default:"0" min:"0" class:"free" doc:"Seconds without a step after which the run says what it waits for; 0 is 30, or five of the longest steps where that is more. A process that hangs is ended then, at the earliest after five of the longest steps."`
}

// Check implements section.
func (l *Log) Check(at faults) {
	l.checkSeen(at)
	for i, name := range l.Trackers {
		if have := source.Offered(source.Trackers); !slices.Contains(have, name) {
			at.fault("log.trackers", fmt.Sprintf("there is no %q", name), source.OneOf(have))
		} else if slices.Contains(l.Trackers[:i], name) {
			at.fault("log.trackers", name+" is there twice", "name it once")
		}
	}
}

// nearestDivisor is the divisor of n nearest to want, the smaller of two.
func nearestDivisor(n, want int) int {
	best := 1
	for d := 1; d <= n; d++ {
		if n%d == 0 && abs(d-want) < abs(best-want) {
			best = d
		}
	}
	return best
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
