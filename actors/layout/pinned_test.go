package layout

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/configs"
	_ "github.com/lfactor/lfactor/stages/family/all"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew from what is laid out now")

// Models of the pinned layouts, small ones of four kinds.
const (
	pinnedLlama = `model: {name: llama/3.2-1b, init: random, overrides: {hidden_size: 32, num_hidden_layers: 4,
  num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, intermediate_size: 64, vocab_size: 101,
  max_position_embeddings: 64, rope_scaling: none}}
data: {paths: [none], tokenizer: none, seq_len: 32}
train: {steps: 4, global_batch: 8}
`
	pinnedExperts = `model: {name: qwen/3-30b-a3b, init: random, overrides: {hidden_size: 32, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, intermediate_size: 64, vocab_size: 96, num_experts: 6,
  num_experts_per_tok: 2, moe_intermediate_size: 16}}
data: {paths: [none], tokenizer: none, seq_len: 32}
train: {steps: 4, global_batch: 8}
`
	pinnedPictures = `model: {name: qwen-vl/2.5-3b, init: random, overrides: {hidden_size: 32, num_hidden_layers: 4,
  num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, intermediate_size: 64, vocab_size: 96,
  rope_scaling: {rope_type: mrope, mrope_section: [1, 1, 2]}, vision: {depth: 2, hidden_size: 32,
  intermediate_size: 64, num_heads: 4, fullatt_block_indexes: [1]}}}
data: {kind: media, paths: [none], tokenizer: none, seq_len: 64}
train: {steps: 4, global_batch: 8}
plan: {encoder: {patches: 64}}
`
)

// pinned are the layouts of testdata/layouts.txt: each axis, each way to share out state, both kinds of
// backward, parts with ranks of their own, experts that move, chunks, and what waits on the host.
var pinned = []struct{ name, text, args string }{
	{"pipeline, replicas and tensors", pinnedLlama, "plan.pp=2 plan.dp=2 plan.tp=2 plan.zero=1"},
	{"gradients sharded", pinnedLlama, "plan.dp=4 plan.zero=2 train.precision=bf16"},
	{"parameters sharded in groups", pinnedLlama,
		"plan.dp=4 plan.zero=3 plan.zero_ranks=2 plan.recompute=full"},
	{"ring of tokens, fp16", pinnedLlama, "plan.cp=2 plan.cp_comm=ring plan.tp=2 train.precision=fp16 " +
		"plan.sequence_parallel=true"},
	{"exchanged heads", pinnedLlama, "plan.cp=2 plan.cp_comm=ulysses plan.dp=2 plan.zero=1"},
	{"interleaved, uneven", pinnedLlama, "plan.pp=2 plan.virtual_stages=2 plan.schedule=interleaved " +
		"plan.layers=[1,1,2,0] plan.overlap=true"},
	{"split backward in buckets", pinnedLlama,
		"plan.pp=2 plan.dp=2 plan.schedule=zb-h1 plan.bucket_bytes=4KiB " +
			"plan.overlap=true"},
	{"chunks", pinnedLlama, "plan.pp=2 plan.schedule=seq1f1b plan.chunk_size=16 plan.keep_chunks=1"},
	{"moved to the host", pinnedLlama,
		"plan.offload=true plan.offload_optimizer=true plan.dp=2 plan.zero=1 " +
			"plan.offload_optimizer_share=0.5"},
	{"adapters", pinnedLlama, "lora.rank=2 plan.tp=2 plan.dp=2 train.precision=bf16 freeze=['*embed*']"},
	{"experts that move, with copies", pinnedExperts, "plan.dp=4 plan.ep=4 plan.redundant_experts=2 " +
		"train.balance_every=2 plan.zero=1"},
	{"experts cut in two", pinnedExperts, "plan.dp=2 plan.tp=2 plan.ep=2 plan.etp=2 plan.pp=2 plan.zero=0 " +
		"train.router.loss=batch train.routing_bound=1.5"},
	{"an encoder on ranks of its own", pinnedPictures, "plan.pp=2 plan.dp=2 plan.encoder.over=own " +
		"plan.encoder.ranks=2 plan.encoder.tp=2 plan.encoder.recompute=full"},
	{"an encoder on all ranks", pinnedPictures, "plan.pp=2 plan.encoder.over=all plan.encoder.fill=false " +
		"train.encoder_precision=bf16 optimizer.encoder_lr_scale=0.5 freeze=['visual.blocks*']"},
	{"an encoder cut with the decoder", pinnedPictures, "plan.pp=2 plan.layers=[1,3] plan.dp=2 plan.zero=2"},
}

// TestPinnedLayouts: what follows from plans is what testdata/layouts.txt says: programs, ports, who holds
// and sums what, bytes, and the segments of the optimizer step. A change there is one of what is trained or
// of what it needs. After a change that is meant: go test ./actors/layout -rewrite.
func TestPinnedLayouts(t *testing.T) {
	var b strings.Builder
	for _, p := range pinned {
		c, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(p.text),
			Args: strings.Fields(p.args)})
		require.NoError(t, err, p.name)
		j, err := FromConfig(c)
		require.NoError(t, err, p.name)
		l, err := New(j)
		require.NoError(t, err, p.name)
		fmt.Fprintf(&b, "# %s\n%s\n", p.name, p.args)
		writeLayout(&b, l)
		writeRun(&b, c, l)
		fmt.Fprintln(&b)
	}
	const file = "testdata/layouts.txt"
	if *rewrite {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String(),
		"after a change that is meant: go test ./actors/layout -rewrite")
}

// writeLayout writes what a layout has, ranks in full that are the first and the last, and of the others a hash.
func writeLayout(w io.Writer, l *Layout) {
	fmt.Fprintf(w, "%d ranks, %d local; class %d, filled %v, dealt %d, split %v; order %s\n", l.World(),
		l.LocalRanks(),
		l.Class, l.Filled, l.Dealt(), l.split, hashOf(fmt.Sprint(l.Order)))
	for r, row := range l.Program.Rows {
		fmt.Fprintf(w, "  row %d: %v\n", r, row)
	}
	fmt.Fprintf(w, "  evaluation: %s; stages %v; held %v\n", hashOf(fmt.Sprint(l.Eval.Rows)), l.pipe, l.held)
	for i, p := range l.Ports {
		fmt.Fprintf(w, "  port %s: %+v absent %v %v\n", l.Names[i], p, l.Absent(p.ID, 0), l.Absent(p.ID,
			l.Class))
	}
	for s := range l.Stages {
		tr := l.Main(s)
		fmt.Fprintf(w, "  stage %d on side %d: %d parameters, made again %s\n", s, l.Side(s), len(tr.Params),
			hashOf(fmt.Sprint(l.Made(s))))
	}
	for r := range l.Ranks {
		var b strings.Builder
		writeRank(&b, l, r)
		if r == 0 || r == len(l.Ranks)-1 {
			io.WriteString(w, b.String())
		} else {
			fmt.Fprintf(w, "  rank %d: %s\n", r, hashOf(b.String()))
		}
	}
}

func hashOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16] }

func writeRank(w io.Writer, l *Layout, r int) {
	part := &l.Ranks[r]
	fmt.Fprintf(w, "  rank %d: %s %+v row %d stages %v ties %v\n", r, l.Name(r), part.Coord, part.Row,
		part.Stages,
		part.Ties)
	for i, s := range part.Sides {
		fmt.Fprintf(w, "    side %d: %+v at %v first %v\n", i, s.Mesh, s.Pos, s.First())
	}
	fmt.Fprintf(w, "    memory %+v total %d worst %d\n", l.Memory(r), l.Memory(r).Total(),
		l.Memory(r).WorstTotal())
	for _, h := range part.All {
		fmt.Fprintf(w, "    holds %s side %d %+v saves %v\n", h.Name, h.Side, h.Region, h.Saves)
	}
	for _, p := range part.Params {
		fmt.Fprintf(w, "    trains %s sum %v reduce %v zero %v gather %v own %+v saves %v tie %d counts %v away %v\n",
			p.Name, p.Sum, p.Reduce, p.Zero, p.Gather, p.Own, p.SavesOwn, p.Tie, p.Counts, p.Away)
	}
	for segment := range numUpdate {
		for _, x := range l.Exchanges(part, segment) {
			fmt.Fprintf(w, "    exchange %d: %+v\n", segment, x)
		}
	}
	for i, s := range l.updateSegments(part) {
		fmt.Fprintf(w, "    update %d: %+v\n", i, s)
	}
	for i, s := range l.movingSegments(part) {
		fmt.Fprintf(w, "    moving %d: %+v\n", i, s)
	}
	for _, m := range l.Moves(part) {
		fmt.Fprintf(w, "    move: block %d, %d bytes\n", m.Block, l.movedBytes(part, m))
	}
	fmt.Fprintf(w, "    pieces %s, early %s\n", hashOf(fmt.Sprintf("%+v", l.Pieces(part))), earlyOf(l, part))
	writeActions(w, l, part)
	rl := l.RankLayout(r, 0)
	fmt.Fprintf(w, "    loader %v groups %+v peers", rl.Loader, rl.Groups)
	for s := range l.Stages {
		if part.Coord.PP >= 0 && l.Side(s) == DecoderSide {
			fmt.Fprintf(w, " %v", rl.Peer(s))
		}
	}
	fmt.Fprintln(w)
}

// earlyOf is what is sent before the optimizer step, as a hash; "none".
func earlyOf(l *Layout, part *RankPart) string {
	e := l.Early(part)
	if e == nil {
		return "none"
	}
	text := fmt.Sprint(e.Segment)
	for _, a := range l.Program.Rows[part.Row] {
		for segment := range int32(12) {
			text += fmt.Sprintln(a, segment, e.Of(a.Action, l.Class, segment))
		}
	}
	return hashOf(text)
}

// writeActions writes the segments of a rank's actions as a hash, and the first forward's in full.
func writeActions(w io.Writer, l *Layout, part *RankPart) {
	var all strings.Builder
	for i, a := range l.Program.Rows[part.Row] {
		segments := l.Lower(a.Action, false, l.Class)
		fmt.Fprintf(&all, "%v %+v\n", a, segments)
		if i == 0 {
			fmt.Fprintf(w, "    %v: %d segments\n", a, len(segments))
		}
	}
	for _, a := range l.Eval.Rows[part.Row] {
		fmt.Fprintf(&all, "%v %+v\n", a, l.Lower(a.Action, true, l.Class))
	}
	fmt.Fprintf(w, "    actions %s\n", hashOf(all.String()))
}

// writeRun writes what belongs to a run as a whole.
func writeRun(w io.Writer, c *configs.Config, l *Layout) {
	for procs := range min(3, l.World()) {
		procs++
		var owners []int
		for r := range l.World() {
			owners = append(owners, l.Owner(r, procs))
		}
		fmt.Fprintf(w, "  in %d processes: ranks of %v, buddies %v, actors %v\n", procs, owners,
			l.Buddies(procs, nil),
			l.ActorNames(procs))
		for ref := CoordinatorRef; ref < FirstRank+actors.Ref(l.World()); ref++ {
			fmt.Fprintf(w, " %d", l.OwnerOf(ref, procs))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "  alone %v same %v worst share %.3f step %.6g operations, borders %v\n", l.Alone(),
		l.Same(),
		l.WorstShare(), l.StepFlops(), l.Borders())
	co := Coordination(c)
	fmt.Fprintf(w, "  coordination: first %d last %d save %d %v eval %d %d scale %+v rates %.6g %.6g\n",
		co.First, co.Last,
		co.SaveEvery, co.SaveAtEnd, co.EvalEvery, co.EvalSteps, co.LossScale, co.LR(1), co.LR(co.Last))
	fmt.Fprintf(w, "  routing %+v\n", l.Design.RoutingHeader("m"))
	l.Design.Memory = l.Memory(0).Total() / 2
	fmt.Fprintf(w, "  half the memory: %v\n", l.Fits(func() string { return "" }))
	l.Design.Memory = slices.Max(allMemory(l))
	fmt.Fprintf(w, "  all of it: %v\n", l.Fits(func() string { return "" }))
	if loads := loadsOf(l); loads != nil {
		fmt.Fprintf(w, "  rebalanced: %+v\n", l.Rebalance(2, loads, nil))
	}
}

func allMemory(l *Layout) (out []int64) {
	for r := range l.World() {
		out = append(out, l.Memory(r).WorstTotal())
	}
	return out
}

// loadsOf are loads of the blocks with experts that can move, the first expert the busiest; nil for none.
func loadsOf(l *Layout) (out []core.Load) {
	if l.Design.MoveEvery == 0 {
		return nil
	}
	for _, m := range l.Moves(&l.Ranks[0]) {
		rows := make([]float64, l.Design.Model.Spec.Experts.Experts)
		for e := range rows {
			rows[e] = float64(100 / (e + 1))
		}
		out = append(out, core.Load{Block: m.Block, Rows: rows})
	}
	return out
}
